"""Brokers for the tests of its users: one that runs while a `with` block does, and a pytest plugin around it.

Runs in the process of somebody's tests. It starts brokers as `rotunda start` does and speaks to them as any client; it
imports no client library and nothing of the broker's own processes.
"""

from broker.testing.running_broker import ExternalBroker, RotundaBroker

__all__ = ["ExternalBroker", "RotundaBroker"]
