"""The producer's I/O thread: sends batches and handles their responses."""
