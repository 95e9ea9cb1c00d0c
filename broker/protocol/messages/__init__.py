"""Messages with code of their own: Produce and Fetch with their records, and those that consumers send each other."""
