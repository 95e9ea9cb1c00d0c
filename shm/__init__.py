"""Shared memory: the segments, rings, bells and tables through which Rotunda's processes talk.

Imports nothing of the broker, so that a program that only watches (the status page) can use it alone.
`shm.layout` is the map; read it first.
"""
