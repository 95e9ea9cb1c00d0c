"""Tests of broker.protocol.messages."""
