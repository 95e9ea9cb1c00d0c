"""What the session of a new connection says before its client has authenticated, if it ever does.

Runs in processor processes. Nothing where there are no ACLs and the listener has one address for all clients; else the
client's address is in it, and the address of this machine by which it has come (`C18`). With TLS the handshake says by
which name that was.
"""

from __future__ import annotations

import socket
from typing import TYPE_CHECKING

from rotunda.broker.security.session import pack_session
from rotunda.broker.security.tls.listener_tls import PROTOCOLS
from rotunda.shm.tables.client_hosts import host_text, packed_host

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rotunda.broker.ipc.listener_table import ListenerEntry
    from rotunda.broker.network.processor.channel import Channel


class NewSessions:
    """Gives new channels their sessions; ``names_hosts``: somebody asks where clients come from."""

    def __init__(self, *, names_hosts: bool) -> None:
        self._names_hosts = names_hosts
        #: By index, as the supervisor publishes them.
        self.listeners: Sequence[ListenerEntry] = ()

    def begin(self, channel: Channel) -> None:
        """Give a new channel its session."""
        sock = channel.sock
        listener = self.listeners[channel.listener] if self.listeners else None
        told = listener is not None and listener.reached_port and listener.protocol not in PROTOCOLS
        if told and isinstance(sock, socket.socket):
            # An IPv4 address that was reached by a socket of both families is told as what it is.
            channel.reached = host_text(packed_host(sock.getsockname()[0]))
        if self._names_hosts or channel.reached:
            peer = channel.peer if self._names_hosts else ""
            channel.session = pack_session(channel.user, peer, channel.reached)
