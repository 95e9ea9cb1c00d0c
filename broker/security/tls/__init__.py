"""TLS: what a listener shows and whom it trusts, and who the holder of a certificate is. No sockets."""
