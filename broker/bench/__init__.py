"""The bench: replays a profile's load against any Kafka broker, and reports the results."""
