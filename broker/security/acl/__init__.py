"""Access control lists: their fields and filters, the checks of each API, and the authorizer."""
