"""Tests of broker.client.consumer."""
