"""Tests of broker.client.network."""
