"""The handler and controller process: its request loop, its API context, and the calls between targets.

The top of the request-serving rooms: it imports all of `partitions`, `coordinator` and `apis`, and never touches a
socket.
"""
