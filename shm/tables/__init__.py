"""The tables: state published by one process, in rows, slots and snapshots, for all others to read."""
