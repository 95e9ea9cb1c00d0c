"""The session of a new connection before authentication.

Runs in processor processes. It is empty without ACLs on a listener with one address for all clients; otherwise it
contains the client's address, and the address of this machine that the client connected to (`C18`). With TLS the
handshake adds the host name instead.
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
    """Creates the sessions of new channels; ``names_hosts``: sessions need the client's address."""

    def __init__(self, *, names_hosts: bool) -> None:
        self._names_hosts = names_hosts
        #: By index, as published by the supervisor.
        self.listeners: Sequence[ListenerEntry] = ()

    def begin(self, channel: Channel) -> None:
        """Set the session of a new channel."""
        sock = channel.sock
        listener = self.listeners[channel.listener] if self.listeners else None
        has_names = listener is not None and listener.reached_port and listener.protocol not in PROTOCOLS
        if has_names and isinstance(sock, socket.socket):
            # An IPv4 address reached through a dual-stack socket is written as IPv4.
            channel.reached = host_text(packed_host(sock.getsockname()[0]))
        if self._names_hosts or channel.reached:
            peer = channel.peer if self._names_hosts else ""
            channel.session = pack_session(channel.user, peer, channel.reached)
