"""Fetch: offsets from the partition table, file ranges from the log, and parked requests that wait for more bytes."""
