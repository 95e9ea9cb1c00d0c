"""Parses ``listeners`` and ``advertised.listeners`` and reports their errors. Pure; opens no socket.

Rules: names are upper-cased, map to a protocol and are unique. Ports of listeners are unique but for one IPv4 and one
IPv6 address on the same port (``H04``); advertised ports need not be: a proxy may distinguish listeners by host. The
wildcard address is never advertised (``C18``); an address that other machines can reach needs ``insecure.listen``
unless its clients are authenticated. Where that is not set, the wildcard address becomes the loopback address if that
is the advertised one: as in Kafka's own sample file.
"""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace

#: Name, host, port. Hosts have the characters of Kafka's, an IPv6 address with or without its brackets.
_ADDRESS = re.compile(r"([A-Za-z0-9_.-]+)://\[?([0-9A-Za-z%._:-]*)\]?:(\d+)")
_PROTOCOLS = ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")
_HIGHEST_PORT = 65535
_LONGEST_NAME = 255

#: Maximum number of listeners, at one time and over one run of the broker.
MOST_LISTENERS = 32


@dataclass(frozen=True, slots=True)
class Listener:
    """One entry of listeners or advertised.listeners.

    Without a host: listens on every interface, and advertises the address that each client has reached. Port 0: listens
    on any free port, and advertises that.
    """

    name: str
    host: str
    port: int
    protocol: str

    def __str__(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{self.name}://{host}:{self.port}"

    @property
    def is_wildcard(self) -> bool:
        return self.host in ("", "0.0.0.0", "::")  # noqa: S104 - recognised, not bound

    @property
    def is_loopback(self) -> bool:
        """Whether only this machine can reach it."""
        if self.host == "localhost":
            return True
        try:
            return ipaddress.ip_address(self.host).is_loopback
        except ValueError:
            return False

    @property
    def lacks_zone(self) -> bool:
        """Whether it is a link-local address, which needs an interface, without one."""
        try:
            return ipaddress.IPv6Address(self.host).is_link_local and "%" not in self.host
        except ValueError:
            return False


def parse_protocol_map(text: str) -> dict[str, str]:
    """Return listener name -> protocol from NAME:PROTOCOL, comma-separated. Protocols' own names map to themselves.

    Raises ValueError, worded for the user.
    """
    protocols = {protocol: protocol for protocol in _PROTOCOLS}
    for entry in filter(None, map(str.strip, text.split(","))):
        name, separator, protocol = entry.partition(":")
        if not separator or protocol.strip().upper() not in _PROTOCOLS:
            raise ValueError(f"invalid entry {entry}: expected NAME:PROTOCOL with one of {', '.join(_PROTOCOLS)}")
        protocols[name.strip().upper()] = protocol.strip().upper()
    return protocols


def parse_listeners(entries: Sequence[str], protocols: Mapping[str, str]) -> tuple[Listener, ...]:
    """Parse ``listeners``. Raises ValueError, worded for the user."""
    listeners = parse_advertised(entries, protocols)
    for index, listener in enumerate(listeners):
        for other in listeners[index + 1 :]:
            if listener.port == other.port != 0 and not _differ_in_family(listener, other):
                raise ValueError(f"each listener must have a different port, {listener.port} is used twice")
    return listeners


def parse_advertised(entries: Sequence[str], protocols: Mapping[str, str]) -> tuple[Listener, ...]:
    """Parse ``advertised.listeners``. Raises ValueError, worded for the user."""
    listeners = tuple(_parse_entry(entry, protocols) for entry in entries)
    names = [listener.name for listener in listeners]
    for name in names:
        if names.count(name) > 1:
            raise ValueError(f"each listener must have a different name, {name} is used twice")
    return listeners


def without_controllers(entries: Sequence[str], controllers: Collection[str] | None) -> list[str]:
    """Return the entries without those of the controller's listeners, which are never opened."""
    names = {name.upper() for name in controllers or ()}
    return [entry for entry in entries if entry.partition("://")[0].upper() not in names]


def narrowed(
    listeners: Sequence[Listener], advertised_entries: Sequence[Listener], authenticates: Callable[[Listener], bool]
) -> tuple[Listener, ...]:
    """Return the listeners; those on all interfaces that are advertised at a loopback address listen just there.

    Unless clients are authenticated there.
    """
    hosts = {entry.name: _loopback(entry) for entry in advertised_entries if entry.is_loopback}
    return tuple(
        replace(listener, host=hosts[listener.name])
        if listener.is_wildcard and listener.name in hosts and not authenticates(listener)
        else listener
        for listener in listeners
    )


def check_listeners(
    listeners: Sequence[Listener], insecure_listen: bool, authenticates: Callable[[Listener], bool]
) -> None:
    """Raise ValueError, worded for the user, if a listener's address is not allowed."""
    if not listeners:
        raise ValueError("at least one listener is required")
    if len(listeners) > MOST_LISTENERS:
        raise ValueError(f"{len(listeners)} listeners, at most {MOST_LISTENERS} are supported")
    for listener in listeners:
        if listener.lacks_zone:
            raise ValueError(f"{listener} is a link-local address: name its interface, as in [{listener.host}%eth0]")
        if not (listener.is_loopback or insecure_listen or authenticates(listener)):
            raise ValueError(
                f"other machines can reach {listener}, and its clients are not authenticated: use "
                "SASL_SSL, or SSL with ssl.client.auth=required; or allow it with insecure.listen=true"
            )


def advertised(listeners: Sequence[Listener], advertised_entries: Sequence[Listener]) -> tuple[Listener, ...]:
    """Return one advertised listener for each listener, in the same order.

    A listener on all interfaces without an advertised one, and an empty host, result in one without a host: each client
    gets the address by which it has reached the broker, with TLS the server name of its handshake. Raises ValueError,
    worded for the user.
    """
    names = [listener.name for listener in listeners]
    for entry in advertised_entries:
        if entry.name not in names:
            raise ValueError(f"unknown listener {entry.name}")
        if entry.host and entry.is_wildcard:
            raise ValueError(f"{entry} cannot be advertised; use a routable address")
    by_name = {entry.name: entry for entry in advertised_entries}
    return tuple(by_name.get(listener.name) or _self_advertised(listener) for listener in listeners)


def _loopback(listener: Listener) -> str:
    """Return the address of a loopback host: for a name with two addresses the one that all clients try."""
    return "127.0.0.1" if listener.host == "localhost" else listener.host


def _self_advertised(listener: Listener) -> Listener:
    return replace(listener, host="") if listener.is_wildcard else listener


def _parse_entry(entry: str, protocols: Mapping[str, str]) -> Listener:
    match = _ADDRESS.fullmatch(entry)
    if match is None:
        raise ValueError(f"invalid listener {entry}: expected NAME://host:port")
    name, host, port = match[1].upper(), _host(entry, match[2]), int(match[3])
    if len(entry) > _LONGEST_NAME:
        raise ValueError(f"{entry[:_LONGEST_NAME]}... is longer than {_LONGEST_NAME} characters")
    if port > _HIGHEST_PORT:
        raise ValueError(f"invalid port in {entry}")
    protocol = protocols.get(name)
    if protocol is None:
        raise ValueError(f"no protocol for listener {name}; add it to listener.security.protocol.map")
    return Listener(name, host, port, protocol)


def _host(entry: str, text: str) -> str:
    """Return the host; an IPv6 address without a meaningless zone, as few resolvers accept it there."""
    if ":" not in text:
        return text
    try:
        address = ipaddress.IPv6Address(text)
    except ValueError:
        raise ValueError(f"{entry} has an invalid IPv6 address: {text}") from None
    return text if address.is_link_local else text.partition("%")[0]


def _differ_in_family(one: Listener, other: Listener) -> bool:
    """Whether one is an IPv4 address and the other an IPv6 address."""
    try:
        return ipaddress.ip_address(one.host).version != ipaddress.ip_address(other.host).version
    except ValueError:
        return False
