"""The coordinators of the groups and transactional ids of a handler.

Run by handlers. State is loaded from the records of `__consumer_offsets` and `__transaction_state`, and changes only
with appended records. Imports `partitions` for that, and must not import APIs. A kind of group is a class of groups
(`group.Group`), a protocol that runs them (`group_protocol.GroupProtocol`) and a table of its records.
`group_coordinator` has a row for each, and `group_status_publisher` another for the snapshot.
"""
