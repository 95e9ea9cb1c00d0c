"""Tests of broker.client.producer."""
