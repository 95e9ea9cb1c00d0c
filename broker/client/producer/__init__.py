"""The producer: records from calls into batches, and batches from there to the leaders of their partitions."""
