"""The scheduling of tasks: in slices of a turn, in other targets, or at an event or a deadline.

Run by handlers and the controller, which are one loop each. Knows no API.
"""
