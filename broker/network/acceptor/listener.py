"""Opening the listening sockets: bind, listen.

Runs in the supervisor, before and after its children boot. Binding and listening are two steps. A port is
bound at once, so that port 0 becomes a number and a taken port fails the start early; it listens only when
every other process is ready, so an open port means a working broker (`A02`). Until then a client is refused,
which every client retries.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from rotunda.broker.config.bound_socket import bound_socket, refused
from rotunda.broker.ipc.process_context import BoundListener

if TYPE_CHECKING:
    from rotunda.broker.config.listeners import Listener


def bind(wanted: Listener, advertised: Listener, receive_buffer_bytes: int, index: int) -> BoundListener:
    """Return the listener, bound and not yet listening; ``index`` is its place among those of the run.

    Raises BootFailed as `bound_socket` does.
    """
    sock = bound_socket(wanted, receive_buffer_bytes)
    port = sock.getsockname()[1]
    told = advertised.host, advertised.port or port
    return BoundListener(wanted.name, wanted.host, port, sock, *told, wanted.protocol, index)


def listen(listener: BoundListener, backlog: int) -> None:
    """Let clients in. Raises BootFailed, with exit code 4 when another program listens there by now."""
    try:
        listener.socket.listen(backlog)
    except OSError as failure:
        raise refused(f"{listener.name}://{listener.host}:{listener.port}", failure) from failure
