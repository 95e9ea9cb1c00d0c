"""Committed offsets: what is committed, with which records, and when it expires."""
