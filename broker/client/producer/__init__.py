"""The producer: `send` appends records to batches, and a sender thread sends the batches to the partition leaders."""
