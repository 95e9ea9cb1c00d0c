"""Kafka's wire protocol: bytes to values and back.

Pure: no socket, no file, no clock, no shared memory. Processors use routing, handlers use all of it. Invalid bytes
raise `InvalidReceive`, however hostile they are.
"""
