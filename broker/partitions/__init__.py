"""The partitions that a handler owns, and those of others that it reads: what stands between a request and a log.

Run by handlers. Imports `log`, `metadata`, `ipc` and `scheduling`; knows groups and transactions by their errors alone.
"""
