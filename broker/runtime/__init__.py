"""A child process: how it begins and ends, its signals, stacks and garbage, and the directory of a running broker.

Run by every role. Imports `ipc` for what a child inherits.
"""
