"""The producer state of a log: last batches, open transactions, and the snapshots of both."""
