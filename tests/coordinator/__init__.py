"""Tests of broker.coordinator."""
