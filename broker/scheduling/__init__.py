"""When work is done: in slices of a turn, once another process has answered, or when an event or a deadline comes.

Run by handlers and the controller, which are one loop each. Knows no API.
"""
