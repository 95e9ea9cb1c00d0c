"""Records into batches: their bytes, the queues in which batches wait, and the memory that they may take."""
