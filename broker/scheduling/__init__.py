"""The scheduling of work: in slices of a turn, once another process has answered, or at an event or a deadline.

Run by handlers and the controller, which are one loop each. Knows no API.
"""
