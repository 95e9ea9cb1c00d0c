"""A small blocking Kafka client over one connection, for the command line's own requests."""
