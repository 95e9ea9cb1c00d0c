"""All code that touches client sockets: listeners, the acceptor, processors, and the messages between them."""
