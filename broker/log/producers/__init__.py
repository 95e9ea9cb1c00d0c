"""What a log remembers of producers: their last batches, their open transactions, and the snapshots of both."""
