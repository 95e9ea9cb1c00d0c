"""Fetch: offsets from the partition table, ranges of files from the log, and what waits for more bytes."""
