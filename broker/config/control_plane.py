"""The control plane's setting, and its consequences: a listener with a processor of its own (`H01`).

Pure; `broker_config` joins the setting with the others.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from rotunda.broker.config.keys import Kind, Value, setting

if TYPE_CHECKING:
    from rotunda.broker.config.listeners import Listener


class Configuration(Protocol):
    """The settings that the functions of this module read."""

    @property
    def control_plane_listener_name(self) -> str | None:
        """Return the listener's name."""

    @property
    def num_network_threads(self) -> int:
        """Return how many processors clients have."""

    @property
    def bound_listeners(self) -> tuple[Listener, ...]:
        """Return the listeners."""

    def value(self, name: str) -> Value:
        """Return the value of any setting."""


@dataclass(frozen=True, kw_only=True, init=False, repr=False, eq=False)
class ControlPlaneSettings:
    """The listener of the control plane. A part of BrokerConfig."""

    control_plane_listener_name: str | None = setting(
        Kind.STRING,
        None,
        nullable=True,
        default_text="none",
        doc="The listener for administrators, served by a processor of its own, in addition to "
        "num.network.threads, and exempt from max.connections. The broker's own commands use it.",
    )


def processors_of(config: Configuration) -> int:
    """Return the number of processors of a configuration, the control plane's included."""
    return config.num_network_threads + control_processors(config)


def control_processors(config: Configuration) -> int:
    """Return how many processors the control plane has: 1, or 0 where there is none."""
    return int(config.control_plane_listener_name is not None)


def control_plane_complaint(config: Configuration) -> str | None:
    """Return the error in the control plane's listener, if any (`H02`)."""
    name, names = config.control_plane_listener_name, [listener.name for listener in config.bound_listeners]
    if name is None:
        return None
    if name.upper() not in names:
        return f"unknown listener {name}; known: {', '.join(names)}"
    if len(names) == 1:
        return f"{name} is the only listener: clients need another one"
    between = config.value("inter.broker.listener.name")
    return f"{name} is inter.broker.listener.name; they must differ" if _same(name, between) else None


def _same(name: str, other: object) -> bool:
    return isinstance(other, str) and name.upper() == other.upper()
