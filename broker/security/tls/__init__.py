"""TLS: the certificates and trusted authorities of a listener, and the users of client certificates. No sockets."""
