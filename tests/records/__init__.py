"""Tests of broker.records."""
