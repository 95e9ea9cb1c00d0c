"""Tests of the compiled module and its twins in Python."""
