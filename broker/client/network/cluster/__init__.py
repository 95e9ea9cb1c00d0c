"""The cluster as a client knows it: brokers, topics and leaders, and when that is asked for again."""
