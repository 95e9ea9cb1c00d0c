"""Everything that touches a client's socket: listeners, acceptor, processors and what passes between them."""
