"""Tests of broker.runtime."""
