"""Tests of the handlers: partitions, coordinators, APIs and the request loop."""
