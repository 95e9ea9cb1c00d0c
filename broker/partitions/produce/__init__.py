"""Produce: from the request's parts to batches that are staged, written with one call, and answered."""
