"""TLS of a processor: handshakes, records encrypted and decrypted, certificates that are replaced while it runs."""
