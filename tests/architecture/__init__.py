"""Rules about the tree as a whole."""
