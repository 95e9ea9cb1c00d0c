"""The settings that limit connections: how many there may be, of the broker and of an address. Declarations only."""

from __future__ import annotations

import re
from dataclasses import dataclass

from broker.config.keys import MAX_INT, Key, Kind, setting

#: A host as Kafka allows it to be written (its ``validHostPattern``), and a number behind the last colon.
_OVERRIDE = re.compile(r"\[?[0-9A-Za-z\-%._:]+\]?:([0-9]{1,10})")


def _are_overrides(text: str) -> str | None:
    for entry in filter(None, (each.strip() for each in text.split(","))):
        form = _OVERRIDE.fullmatch(entry)
        if form is None or int(form[1]) > MAX_INT:
            return f"{entry!r} is not of the form host:number"
    return None


@dataclass(frozen=True, kw_only=True, init=False, repr=False, eq=False)
class ConnectionSettings:
    """Limits of connections. Only ever part of a BrokerConfig."""

    max_connections: int = setting(
        Key(
            name="max.connections",
            kind=Kind.INT,
            default=MAX_INT,
            unit="connections",
            least=0,
            least_while_running=1,
            dynamic=True,
            doc="Connections that are open at a time, all listeners together. Beyond it others wait to be accepted. "
            "Each takes a descriptor of its processor, whose limit is the system's.",
        )
    )
    max_connections_per_ip: int = setting(
        Key(
            name="max.connections.per.ip",
            kind=Kind.INT,
            default=MAX_INT,
            unit="connections",
            least=0,
            dynamic=True,
            doc="Connections that one address has open at a time; further ones are closed at once. 0 lets in whom "
            "max.connections.per.ip.overrides names, and nobody else. Who is connected already stays.",
        )
    )
    max_connections_per_ip_overrides: str = setting(
        Key(
            name="max.connections.per.ip.overrides",
            kind=Kind.STRING,
            default="",
            dynamic=True,
            doc="Other limits for some addresses, host:number with commas between them. Names are looked up when the "
            "setting is read.",
            validator=_are_overrides,
        )
    )


def per_ip_complaint(config: ConnectionSettings) -> str | None:
    """Return what is wrong if nobody could connect (`A15`)."""
    if config.max_connections_per_ip or config.max_connections_per_ip_overrides.strip(", "):
        return None
    return "can be 0 only if max.connections.per.ip.overrides lets somebody in"
