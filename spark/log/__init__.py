"""The request log as jobs see it: the schemas of its datasets, its rows in a range of time, and its deleted rows."""
