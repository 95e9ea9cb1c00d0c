"""Classic groups: members join, elect a leader and sync, by Kafka's classic protocol."""
