"""The rings: frames from one process to another, bells that wake their readers, and the arena that frames point to."""
