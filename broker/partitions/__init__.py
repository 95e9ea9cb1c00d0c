"""The partitions of a handler, owned and read-only: the layer between requests and logs.

Runs in handlers. Imports `log`, `metadata`, `ipc` and `scheduling`. Must not import groups or transactions, except for
their errors.
"""
