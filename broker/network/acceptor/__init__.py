"""The acceptor's process: listening sockets, counts and quotas of connections, and whom a connection is handed to."""
