"""Commands that are clients of a running broker, of most Kafka brokers too, and what makes clients able to connect."""
