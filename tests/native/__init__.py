"""Tests of the compiled module beside its twins in Python."""
