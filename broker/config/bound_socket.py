"""The socket of a listener, bound to its address and not listening yet.

Used by the supervisor, which opens listeners, and by the controller, which tries an address before it stores a change
to it. Knows the options of sockets and nothing of connections.
"""

from __future__ import annotations

import errno
import socket
from typing import TYPE_CHECKING

from rotunda.broker.errors import BootFailed

if TYPE_CHECKING:
    from rotunda.broker.config.listeners import Listener

_IN_USE_EXIT_CODE = 4


def bound_socket(wanted: Listener, receive_buffer_bytes: int = -1) -> socket.socket:
    """Return a socket bound to the address of a listener (`A04`).

    SO_RCVBUF is set before the bind, unless -1, and connections inherit it. Raises BootFailed when the address cannot
    be bound, with exit code 4 when it is in use.
    """
    try:
        family, address = _address_of(wanted)
        sock = socket.socket(family, socket.SOCK_STREAM | socket.SOCK_NONBLOCK)
    except OSError as failure:
        raise listen_failure(str(wanted), failure) from failure
    try:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if receive_buffer_bytes != -1:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_buffer_bytes)
        if family == socket.AF_INET6:
            # An empty host means all interfaces of both families; an IPv6 address means just that address.
            sock.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1 if wanted.host else 0)
        sock.bind(address)
    except OSError as failure:
        sock.close()
        raise listen_failure(str(wanted), failure) from failure
    return sock


def listen_failure(name: str, failure: OSError) -> BootFailed:
    """Return the exception with the reason why a listener cannot be opened."""
    if failure.errno == errno.EADDRINUSE:
        return BootFailed(f"cannot listen on {name}: the port is in use by another program", _IN_USE_EXIT_CODE)
    return BootFailed(f"cannot listen on {name}: {failure.strerror or failure}")


def resolve(host: str, port: int) -> tuple[socket.AddressFamily, tuple[str | int | bytes, ...]]:
    """Return the family and the address of a host to bind to. Raises OSError."""
    try:
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    except UnicodeError:
        raise OSError(f"invalid host name {host}: a label is empty or longer than 63 characters") from None
    family, _, _, _, address = found[0]
    return family, address


def _address_of(wanted: Listener) -> tuple[socket.AddressFamily, tuple[str | int | bytes, ...]]:
    if wanted.host:
        return resolve(wanted.host, wanted.port)
    if socket.has_dualstack_ipv6():
        return socket.AF_INET6, ("::", wanted.port)
    return socket.AF_INET, ("0.0.0.0", wanted.port)  # noqa: S104 - the meaning of an empty host
