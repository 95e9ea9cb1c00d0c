"""Tests of broker.cleaner."""
