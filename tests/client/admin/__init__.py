"""Tests of broker.client.admin."""
