"""Users and access control lists as metadata: what may be changed, and how it is stored."""
