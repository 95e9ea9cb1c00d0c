"""Consumer groups (KIP-848): members send heartbeats, and the broker assigns their partitions."""
