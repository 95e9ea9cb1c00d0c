"""Parse `bootstrap.servers` and resolve broker host names.

Runs in the user's process. DNS lookups block, in the I/O thread as in Kafka's client. They happen before a connection
is made, and again after all addresses were tried or a connection was lost.
"""

from __future__ import annotations

import logging
import re
import socket
from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple

from rotunda.broker.client.network.network_config import CANONICAL_BOOTSTRAP
from rotunda.broker.errors import ConfigError

logger = logging.getLogger(__name__)

_LARGEST_PORT = 65535
_HOST_AND_PORT = re.compile(r"(?:[A-Za-z_][A-Za-z0-9+.\-_]*://)?(?:\[([0-9A-Fa-f:.%\w]+)\]|([^\s:/\[\]]+)):(\d+)")


class Address(NamedTuple):
    """The address of a socket's peer."""

    family: int
    host: str


class HostAndPort(NamedTuple):
    """The host name and port of a broker."""

    host: str
    port: int


Resolve = Callable[[str], Sequence[Address]]


def resolve(host: str) -> list[Address]:
    """Return all addresses of a host, IPv4 first, as Java prefers it. Raises OSError if the lookup fails."""
    try:
        found = socket.getaddrinfo(host, None, type=socket.SOCK_STREAM)
    except UnicodeError as failure:
        raise OSError(f"invalid host name {host!r}: {failure}") from failure
    addresses = dict.fromkeys(Address(int(family), str(address[0])) for family, _, _, _, address in found)
    return sorted(addresses, key=lambda address: address.family != socket.AF_INET)


def parse_host_and_port(server: str) -> HostAndPort:
    """Parse one entry of `bootstrap.servers`. Raises ConfigError."""
    matched = _HOST_AND_PORT.fullmatch(server.strip())
    if matched is None:
        raise ConfigError(f"bootstrap.servers: invalid {server!r}: expected HOST:PORT")
    six, four, port = matched.groups()
    if not 0 < int(port) <= _LARGEST_PORT:
        raise ConfigError(f"bootstrap.servers: the port of {server!r} is not between 1 and {_LARGEST_PORT}")
    return HostAndPort(six or four, int(port))


def parse_bootstrap(servers: Iterable[str], dns_lookup: str, look_up: Resolve = resolve) -> tuple[HostAndPort, ...]:
    """Return the bootstrap brokers; unresolvable names are logged and skipped.

    With `resolve_canonical_bootstrap_servers_only` each name is replaced by the canonical names of all its addresses
    (KIP-235). Raises ConfigError for an invalid entry, and if no name can be resolved.
    """
    named = [parse_host_and_port(server) for server in servers if server.strip()]
    if not named:
        raise ConfigError("bootstrap.servers is empty: set it to HOST:PORT of one or more brokers")
    known: dict[HostAndPort, None] = {}
    for each in named:
        try:
            addresses = look_up(each.host)
        except OSError as failure:
            logger.warning("bootstrap.servers: %s cannot be resolved: %s", each.host, failure)
            continue
        if dns_lookup == CANONICAL_BOOTSTRAP:
            known |= dict.fromkeys(HostAndPort(socket.getfqdn(address.host), each.port) for address in addresses)
        else:
            known[each] = None
    if not known:
        listed = ", ".join(f"{host}:{port}" for host, port in named)
        raise ConfigError(f"bootstrap.servers: cannot resolve any of {listed}: check the names and DNS")
    return tuple(known)
