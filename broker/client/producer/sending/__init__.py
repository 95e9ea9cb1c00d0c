"""Batches on their way: the I/O thread of a producer, and what becomes of each batch that was sent."""
