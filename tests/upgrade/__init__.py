"""Tests that data directories of earlier commits are opened as they are."""
