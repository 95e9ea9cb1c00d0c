"""Tests of broker.client."""
