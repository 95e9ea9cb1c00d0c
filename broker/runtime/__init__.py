"""A child process: its start and end, its signals, stacks and garbage, and the directory of a running broker.

Run by every role. Imports `ipc` for the inherited context.
"""
