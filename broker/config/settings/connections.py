"""The settings that limit connections: the maximum per broker and per address. Declarations only."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from rotunda.broker.config.keys import MAX_INT, Kind, setting

#: A host in the form that Kafka allows (its ``validHostPattern``), and a number after the last colon.
_OVERRIDE = re.compile(r"\[?[0-9A-Za-z\-%._:]+\]?:([0-9]{1,10})")


def _are_overrides(text: str) -> str | None:
    for entry in filter(None, (each.strip() for each in text.split(","))):
        form = _OVERRIDE.fullmatch(entry)
        if form is None or int(form[1]) > MAX_INT:
            return f"invalid override {entry!r}: expected host:number"
    return None


@dataclass(frozen=True, kw_only=True, init=False, repr=False, eq=False)
class ConnectionSettings:
    """Limits of connections. A part of BrokerConfig."""

    max_connections: int = setting(
        Kind.INT,
        MAX_INT,
        unit="connections",
        least=0,
        least_while_running=1,
        dynamic=True,
        doc="Maximum number of open connections, of the broker and of each listener without a "
        "listener.name.<name>.max.connections. Above it new connections wait to be accepted; when it is "
        "lowered, the connections idle longest are closed. Each uses a file descriptor of its processor; some "
        "descriptors are reserved for the processor and for inter.broker.listener.name.",
    )
    max_connection_creation_rate: int = setting(
        Kind.INT,
        MAX_INT,
        unit="connections a second",
        least=0,
        least_while_running=1,
        dynamic=True,
        doc="Maximum rate of new connections, of the broker and of each listener without a rate of its own. Above "
        "it accepting pauses for up to a second; no connection is refused.",
    )
    connection_refusal_rate: int = setting(
        Kind.INT,
        MAX_INT,
        unit="connections a second",
        least=1,
        dynamic=True,
        doc="Maximum rate of new connections from all addresses together. Above it connections are refused like "
        "those of an address above its connection_creation_rate: closed up to a second later, unread.",
    )
    max_connections_per_ip: int = setting(
        Kind.INT,
        MAX_INT,
        unit="connections",
        least=0,
        dynamic=True,
        doc="Maximum number of open connections from one address; further ones are closed at once. 0: only "
        "addresses in max.connections.per.ip.overrides can connect. Open connections are never closed for it.",
    )
    max_connections_per_ip_overrides: str = setting(
        Kind.STRING,
        "",
        dynamic=True,
        validator=_are_overrides,
        doc="Exceptions to max.connections.per.ip, as host:number with commas between them. Host names are "
        "resolved when the setting is read.",
    )
    inter_broker_listener_name: str | None = setting(
        Kind.STRING,
        None,
        nullable=True,
        default_text="PLAINTEXT if a listener is called so",
        doc="The listener reserved for administrators and other brokers, if there are other listeners: exempt "
        "from max.connections and the broker's connection rates, subject to its own, and with reserved file "
        "descriptors.",
    )


def per_ip_complaint(config: ConnectionSettings) -> str | None:
    """Return an error if no client could connect (`A15`)."""
    if config.max_connections_per_ip or config.max_connections_per_ip_overrides.strip(", "):
        return None
    return "0 needs max.connections.per.ip.overrides, or no client can connect"


def inter_broker_complaint(config: ConnectionSettings, listeners: Sequence[str]) -> str | None:
    name = config.inter_broker_listener_name
    return f"unknown listener {name}; known: {', '.join(listeners)}" if name and name.upper() not in listeners else None


def protected_listener(name: str | None, listeners: Sequence[str]) -> str | None:
    """Return the listener that is exempt from limits of the whole broker; None if it is the only one (`A16`)."""
    name = (name or "PLAINTEXT").upper()
    return name if len(listeners) > 1 and name in listeners else None
