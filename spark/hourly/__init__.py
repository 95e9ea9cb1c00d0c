"""The hourly tables: rollups of closed hours, the manifests that define them, and compaction of an hour's files."""
