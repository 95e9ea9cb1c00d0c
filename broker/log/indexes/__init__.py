"""Kafka's index files of a segment: by offset, by time, by aborted transaction."""
