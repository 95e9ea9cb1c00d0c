"""Hand-tuned codecs of the APIs that are asked most often; every other API goes through `kio_adapter`."""
