"""Tests of broker.config."""
