"""The rings: frames from one process to another, bells that wake their readers, and what frames point to."""
