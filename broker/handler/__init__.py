"""The process of a handler and of the controller: its loop, what it knows of the broker, how targets ask each other.

The top of what serves requests: imports all of `partitions`, `coordinator` and `apis`, and never touches a socket.
"""
