"""Tests of broker.server_log."""
