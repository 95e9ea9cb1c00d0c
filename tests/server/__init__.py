"""Tests of broker.server."""
