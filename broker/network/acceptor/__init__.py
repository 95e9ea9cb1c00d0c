"""The acceptor process: listening sockets, connection counts and limits, distribution to processors."""
