"""Tests of broker.cli."""
