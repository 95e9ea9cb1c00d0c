"""The coordinators of the groups and transactional ids that a handler owns.

Run by handlers. State is rebuilt from the records of `__consumer_offsets` and `__transaction_state`, and changed only
by what has been appended there. Imports `partitions` for that, and no API.
"""
