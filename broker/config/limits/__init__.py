"""The table of limits: what a client can make many of. For docs/limits.md and tests; no running process reads it."""
