"""Topics and partitions: made, described, altered, deleted, and where their offsets lie."""
