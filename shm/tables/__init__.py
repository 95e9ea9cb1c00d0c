"""The tables: state that one process publishes, in rows, slots and snapshots, and that all others may read."""
