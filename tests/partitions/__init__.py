"""Tests of broker.partitions."""
