"""Brokers for users' tests: a broker that runs during a `with` block, and a pytest plugin.

Runs in the process of the user's tests. It starts brokers as `rotunda start` does and connects to them like any client;
it must not import third-party client libraries, nor modules of the broker's processes.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rotunda.broker.testing.faults import InjectedFault
    from rotunda.broker.testing.running_broker import ExternalBroker, RotundaBroker

__all__ = ["ExternalBroker", "InjectedFault", "RotundaBroker"]


def __getattr__(name: str) -> Any:
    """Import the requested class lazily: every pytest run loads the plugin, which does not need it."""
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from rotunda.broker.testing import faults, running_broker  # noqa: PLC0415

    return getattr(faults if name == "InjectedFault" else running_broker, name)
