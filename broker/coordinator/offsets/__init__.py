"""Committed offsets: their validation, their records, and their expiration."""
