"""Tests of broker.network."""
