"""Opening the listening sockets: options, bind, listen.

Runs in the supervisor, before and after its children boot. Binding and listening are two steps. A port is
bound at once, so that port 0 becomes a number and a taken port fails the start early; it listens only when
every other process is ready, so an open port means a working broker (`A02`). Until then a client is refused,
which every client retries.
"""

from __future__ import annotations

import errno
import socket
from typing import TYPE_CHECKING

from broker.errors import BootFailed
from broker.ipc.process_context import BoundListener

if TYPE_CHECKING:
    from broker.config.listeners import Listener

_IN_USE_EXIT_CODE = 4


def bind(wanted: Listener, advertised: Listener, receive_buffer_bytes: int) -> BoundListener:
    """Return the listener, bound and not yet listening (`A04`).

    SO_RCVBUF is set before the bind, unless -1, and connections inherit it. Raises BootFailed when the
    address cannot be bound, with exit code 4 when it is in use.
    """
    try:
        family, address = _resolve(wanted)
        sock = socket.socket(family, socket.SOCK_STREAM | socket.SOCK_NONBLOCK)
    except OSError as failure:
        raise BootFailed(f"cannot listen on {wanted}: {failure.strerror or failure}") from failure
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
        raise _refused(str(wanted), failure) from failure
    port = sock.getsockname()[1]
    return BoundListener(wanted.name, wanted.host, port, sock, advertised.host, advertised.port or port)


def listen(listener: BoundListener, backlog: int) -> None:
    """Let clients in. Raises BootFailed, with exit code 4 when another program listens there by now."""
    try:
        listener.socket.listen(backlog)
    except OSError as failure:
        raise _refused(f"{listener.name}://{listener.host}:{listener.port}", failure) from failure


def _resolve(wanted: Listener) -> tuple[socket.AddressFamily, tuple[str, int]]:
    if not wanted.host:
        if socket.has_dualstack_ipv6():
            return socket.AF_INET6, ("::", wanted.port)
        return socket.AF_INET, ("0.0.0.0", wanted.port)  # noqa: S104 - what an empty host asks for
    found = socket.getaddrinfo(wanted.host, wanted.port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    family, _, _, _, address = found[0]
    return family, (str(address[0]), wanted.port)


def _refused(name: str, failure: OSError) -> BootFailed:
    if failure.errno == errno.EADDRINUSE:
        return BootFailed(f"cannot listen on {name}: the port is in use by another program", _IN_USE_EXIT_CODE)
    return BootFailed(f"cannot listen on {name}: {failure.strerror or failure}")
