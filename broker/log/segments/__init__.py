"""The files that hold records: one segment, its names, scanned, walked, rolled, and swapped for a cleaned one.

Run by the owner of a partition; any handler and the cleaner read. Imports nothing of `log` above itself.
"""
