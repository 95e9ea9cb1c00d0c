"""Settings of topics, brokers, groups and clients: how they are described, changed, and come into force."""
