"""Produce: batches are staged, written with one call, committed and acknowledged."""
