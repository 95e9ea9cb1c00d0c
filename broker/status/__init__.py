"""The process of the status page: HTTP beside the broker, from what is published in shared memory."""
