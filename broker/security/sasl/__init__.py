"""SASL: the exchanges between a client and the broker that authenticate the client. Pure; no sockets, no rings."""
