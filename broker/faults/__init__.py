"""Faults that a test injects: what they are, which requests they strike, and what those are answered with.

Runs in the process of the tests, which sets them, and in the targets of a broker that was started for tests, which let
them strike. No other broker has the segment by which they are known (`ProcessContext.faults`), and none loads this.
"""
