"""Admin requests of the commands, over one blocking client."""
