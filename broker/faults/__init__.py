"""Faults that a test injects: their definition, the requests that they match, and the responses to those.

Runs in the process of the tests, which sets the faults, and in the targets of a broker started for tests, which apply
them. Other brokers do not have the shared segment for faults (`ProcessContext.faults`) and never load this package.
"""
