"""Groups whose members join, elect a leader and sync: Kafka's classic protocol."""
