"""Authentication and authorisation of clients.

Used by every process that serves clients; independent of sockets, rings and logs.
"""
