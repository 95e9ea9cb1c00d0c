"""The bench: repeats the load of a profile against any Kafka broker, and reports how that went."""
