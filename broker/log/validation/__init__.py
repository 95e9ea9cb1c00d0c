"""Validation of produced batches before they are appended: sizes, times, and every record."""
