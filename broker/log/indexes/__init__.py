"""Kafka's index files beside a segment: by offset, by time, by aborted transaction."""
