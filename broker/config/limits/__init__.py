"""The table of limits on resources that clients create. For docs/limits.md and tests; no running process reads it."""
