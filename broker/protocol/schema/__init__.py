"""Kafka's message definitions and the code that is generated from them at first use. Pure."""
