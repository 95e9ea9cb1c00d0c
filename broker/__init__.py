"""Rotunda: a Kafka-compatible broker with processes for threads and shared memory for a request channel."""
