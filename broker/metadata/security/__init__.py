"""Users and access control lists as metadata: allowed changes, and their stored form."""
