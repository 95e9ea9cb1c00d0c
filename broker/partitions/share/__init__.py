"""Share partitions: the records of a partition that a share group has in flight, and the sessions of its consumers.

Pure state; runs in the handler that owns the group's state. Must not know logs, requests or how state is stored.
"""
