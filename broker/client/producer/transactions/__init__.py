"""Producer ids, sequences and transactions: their states, and the requests that change them."""
