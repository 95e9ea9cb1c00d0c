"""TLS of a processor: handshakes, encryption and decryption of records, certificates replaced at run time."""
