"""The first process: makes every segment, socket and bell, forks every role, replaces what dies. It serves no request.

The top of the tree beside the command line; nothing but `cli` imports it.
"""
