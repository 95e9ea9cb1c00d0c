"""APIs about users: their credentials."""
