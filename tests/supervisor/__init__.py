"""Tests of broker.supervisor."""
