"""The segment files: names, scans, searches, rolls, and swaps for cleaned ones.

Used by the owner of a partition; any handler and the cleaner read. Imports nothing of `log` above itself.
"""
