"""Aggregates of each minute, and events. In the recorder; readers use the files."""
