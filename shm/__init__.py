"""Shared memory: the segments, rings, bells and tables by which Rotunda's processes communicate.

Used by every process. Imports nothing of the broker, so that a read-only program (the status page) can use it alone.
`shm.layout` is the map; read it first. Then the packages: `rings` transport frames, `tables` are one process's state
published to all others, `metrics` are each process's counters; `control` is the segment with the position of
everything.
"""
