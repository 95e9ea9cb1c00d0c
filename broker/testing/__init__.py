"""Brokers for the tests of its users: one that runs while a `with` block does, and a pytest plugin around it.

Runs in the process of somebody's tests. It starts brokers as `rotunda start` does and speaks to them as any client; it
imports no client library and nothing of the broker's own processes.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rotunda.broker.testing.faults import InjectedFault
    from rotunda.broker.testing.running_broker import ExternalBroker, RotundaBroker

__all__ = ["ExternalBroker", "InjectedFault", "RotundaBroker"]


def __getattr__(name: str) -> Any:
    """Import what is asked for: the plugin is loaded by every pytest run, and does without."""
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from rotunda.broker.testing import faults, running_broker  # noqa: PLC0415

    return getattr(faults if name == "InjectedFault" else running_broker, name)
