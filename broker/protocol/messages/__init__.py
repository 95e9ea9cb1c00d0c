"""Hand-tuned codecs of the APIs that are asked most often; every other API uses `broker.protocol.codec`."""
