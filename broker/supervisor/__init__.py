"""The first process: creates segments, sockets and bells, forks every role, replaces dead processes. Serves no request.

The top of the import tree together with the command line; only `cli` imports it.
"""
