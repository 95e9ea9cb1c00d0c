"""The client's network layer: connections, requests, responses and cluster metadata, driven by one thread.

Runs in the user's process. Modelled on Kafka 4.4's NetworkClient, Selector, ClusterConnectionStates, InFlightRequests
and Metadata, with the same names. It handles brokers, connections and cluster metadata; it must not know about
producers. Other threads may call only `wakeup` and those methods of `metadata` that its module lists.
"""
