"""Messages with code of their own: of the most frequent APIs, and those that consumers send each other."""
