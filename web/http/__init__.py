"""The connections of the status page: their limits, TLS handshakes, and access control."""
