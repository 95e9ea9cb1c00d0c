"""The hourly tables: rollups of closed hours, the manifests that vouch for them, and compaction of an hour's files."""
