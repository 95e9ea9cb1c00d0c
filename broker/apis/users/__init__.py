"""APIs about users: the credentials by which they authenticate."""
