"""Groups whose members heartbeat and are assigned partitions by the broker: KIP-848."""
