"""Share groups, the data side: stored delivery state, in-flight windows, ShareFetch and ShareAcknowledge.

Run by handlers. The owner of a group's partition of `__share_group_state` owns all its share partitions. Members,
assignments and the admin APIs belong to the group's coordinator, which calls the owner's tasks (`share_state_rpc`).
"""
