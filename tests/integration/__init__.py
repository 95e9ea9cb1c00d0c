"""A whole broker, started by its own command line, with unmodified clients and raw bytes."""
