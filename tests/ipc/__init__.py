"""Tests of broker.ipc."""
