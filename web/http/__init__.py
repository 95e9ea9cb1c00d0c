"""The connections of the status page: which are held, how TLS begins, who may ask, and for what."""
