"""Settings of topics, brokers, groups and clients: describing, changing and applying them."""
