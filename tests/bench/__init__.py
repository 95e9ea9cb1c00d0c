"""Tests of broker.bench."""
