"""Bind and listen: opens the listening sockets.

Runs in the supervisor, before and after its children boot, in two steps. A port is bound at once, so that port 0
becomes a number and a port in use fails the start early; it listens only when every other process is ready, so an open
port means a working broker (`A02`). Until then connections are refused, and every client retries.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from rotunda.broker.config.bound_socket import bound_socket, listen_failure
from rotunda.broker.ipc.process_context import BoundListener

if TYPE_CHECKING:
    from rotunda.broker.config.listeners import Listener


def bind(wanted: Listener, advertised: Listener, receive_buffer_bytes: int, index: int) -> BoundListener:
    """Return the listener, bound and not yet listening; ``index`` is its index among the listeners of the run.

    Raises BootFailed as `bound_socket` does.
    """
    sock = bound_socket(wanted, receive_buffer_bytes)
    port = sock.getsockname()[1]
    advertised_address = advertised.host, advertised.port or port
    return BoundListener(wanted.name, wanted.host, port, sock, *advertised_address, wanted.protocol, index)


def listen(listener: BoundListener, backlog: int) -> None:
    """Start listening. Raises BootFailed, with exit code 4 if another program has started listening on the port."""
    try:
        listener.socket.listen(backlog)
    except OSError as failure:
        raise listen_failure(f"{listener.name}://{listener.host}:{listener.port}", failure) from failure
