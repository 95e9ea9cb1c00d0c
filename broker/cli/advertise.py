"""Expands `--advertise` into its setting. Knows the names and ports of listeners, and opens nothing."""

from __future__ import annotations

import ipaddress
from collections.abc import Sequence
from typing import TYPE_CHECKING

from rotunda.broker.errors import UsageError

if TYPE_CHECKING:
    from rotunda.broker.config.listeners import Listener

_HIGHEST_PORT = 65535


def advertised_listeners(texts: Sequence[str], listeners: Sequence[Listener]) -> str:
    """Return the value of advertised.listeners for each [NAME://]HOST[:PORT]; port 0 is the bound one.

    An address without a name is for all listeners that are not named. Raises UsageError.
    """
    common: dict[str, str] = {}
    named: dict[str, str] = {}
    for text in texts:
        name, separator, address = text.rpartition("://")
        host, port = _host_port(address, text)
        names = [name.upper()] if separator else [each.name for each in listeners]
        if not separator and port and len(listeners) > 1:
            first = f"{listeners[0].name}://{address}"
            raise UsageError(f"--advertise {text}: there are {len(listeners)} listeners, name one, as in {first}")
        entries = named if separator else common
        if entries.keys() & set(names):
            raise UsageError(f"--advertise {text}: each listener has one advertised address")
        entries |= {each: f"{each}://{host}:{port}" for each in names}
    return ",".join((common | named).values())


def _host_port(address: str, text: str) -> tuple[str, int]:
    """Return the host, an IPv6 address in brackets, and the port; 0 by default."""
    if _is_ipv6(address):
        return f"[{address}]", 0
    host, separator, port = address.rpartition(":")
    if not separator or address.endswith("]"):
        host, port = address, "0"
    is_host = host and (_is_ipv6(host[1:-1]) if host.startswith("[") else not set(host) & set(":[],/ "))
    if not (is_host and port.isdecimal() and int(port) <= _HIGHEST_PORT):
        raise UsageError(
            f"--advertise {text}: expected HOST, HOST:PORT or NAME://HOST:PORT; [..] around an IPv6 address"
        )
    return host, int(port)


def _is_ipv6(text: str) -> bool:
    try:
        return ipaddress.ip_address(text).version == 6
    except ValueError:
        return False
