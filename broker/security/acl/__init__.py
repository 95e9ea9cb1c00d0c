"""Access control lists: what one says, what it lets whom do, and the authorizer that decides by them."""
