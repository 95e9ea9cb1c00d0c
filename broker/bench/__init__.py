"""The bench: repeats the load of a profile against any Kafka broker, and says how that went."""
