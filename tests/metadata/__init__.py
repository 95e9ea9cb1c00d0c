"""Tests of broker.metadata."""
