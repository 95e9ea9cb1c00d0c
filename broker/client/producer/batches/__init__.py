"""Batches: their record format, their queues, and the memory limit."""
