"""Disk space: the watch, the reserve, and the rejection of records on a full disk.

The watch runs in the controller, the gate in each handler.
"""
