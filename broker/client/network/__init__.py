"""A client's network layer: one thread drives it, requests go in and responses come out.

Runs in the user's process. After Kafka 4.3's NetworkClient, Selector, ClusterConnectionStates, InFlightRequests and
Metadata, and by their names. It knows brokers, connections and what the cluster looks like; it does not know what a
producer is. Only `wakeup` and what `metadata` marks so may be called by other threads.
"""
