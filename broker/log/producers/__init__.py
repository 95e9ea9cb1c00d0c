"""Producers as a log remembers them: their last batches, their open transactions, and the snapshots of both."""
