"""Tests of what clients may use of the broker."""
