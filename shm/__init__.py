"""Shared memory: the segments, rings, bells and tables through which Rotunda's processes talk.

Imports nothing of the broker, so that a program that only watches (the status page) can use it alone.
`shm.layout` is the map; read it first. Then the rooms: `rings` carry frames, `tables` are what one process publishes
to all others, `metrics` what each counts; `control` is the segment that says where everything lies.
"""
