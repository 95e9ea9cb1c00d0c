"""Topics and partitions: create, describe, alter and delete them, and find their offsets."""
