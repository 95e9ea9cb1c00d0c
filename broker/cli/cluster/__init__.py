"""Commands that are clients of a running broker, of most Kafka brokers too, and the setup of clients' access."""
