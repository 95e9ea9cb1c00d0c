"""Producer ids, sequences and transactions of a producer: their states, and the requests that change them."""
