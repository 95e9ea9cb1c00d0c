"""Tests of what handlers do: partitions, coordinators, APIs and their loop."""
