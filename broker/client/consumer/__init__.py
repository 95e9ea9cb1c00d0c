"""A consumer for the commands: a plain loop of fetches, and membership in a classic group. One thread, blocking."""
