"""Tests of broker.protocol."""
