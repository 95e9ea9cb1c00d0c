"""SASL: what a client and the broker say to each other until the broker knows who it is. Pure; no sockets, no rings."""
