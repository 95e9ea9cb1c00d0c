"""The TLS listeners, and the handshakes in progress on their new connections (`B06`, `H07`, `H12`).

Runs in processor processes. A handshake replaces the channel's reading, advances with each event, and never blocks.
Nothing is allocated for a connection before its first byte has arrived. Handshakes are limited in time and in number,
so that unfinished ones keep no client out. Without a TLS listener none of this is imported.
"""

from __future__ import annotations

import logging
import socket
from typing import TYPE_CHECKING, Protocol

from rotunda.broker.errors import AuthenticationFailed, ConfigError
from rotunda.broker.security.tls.listener_tls import PROTOCOLS, ListenerTls, tls_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from rotunda.broker.config.broker_config import BrokerConfig
    from rotunda.broker.ipc.listener_table import ListenerEntry
    from rotunda.broker.network.accounting.client_registry import ClientRegistry
    from rotunda.broker.network.processor.channel import Channel
    from rotunda.broker.security.tls.contexts import ServerTls

logger = logging.getLogger(__name__)

_NS_PER_MS = 1_000_000


class Settings(Protocol):
    """The current settings (`LiveSettings`)."""

    @property
    def broker_config(self) -> BrokerConfig:
        """The broker's settings."""

    @property
    def certificate_readings(self) -> int:
        """Number of requests to reload the certificate files."""

    def refresh(self, *, at_once: bool) -> bool:
        """Apply changed settings; return whether any have changed."""


class TlsListeners:
    """The certificates and contexts of a processor's TLS listeners, and the channels in a handshake."""

    def __init__(self, now_ns: Callable[[], int]) -> None:
        self._now_ns = now_ns
        #: By index, as published by the supervisor.
        self.listeners: Sequence[ListenerEntry] = ()
        self._live: Settings | None = None
        #: By listener: its settings, and the number of reloads of its files.
        self._followed: dict[str, tuple[ListenerTls, int]] = {}
        self._servers: dict[str, ServerTls] = {}
        self._under_way: dict[Channel, int] = {}
        #: Replaces the sockets of closed channels.
        self._closed = socket.socket()
        self._closed.close()
        self._timeout_ns = self._most = 0
        self.clients: ClientRegistry | None = None
        #: Handshakes completed.
        self.done_count = 0

    @property
    def under_way(self) -> int:
        """The number of handshakes in progress."""
        return len(self._under_way)

    @property
    def ends_s(self) -> dict[str, int]:
        """The end of each listener's certificate, in seconds since 1970, by listener name."""
        return {name: server.not_after_s for name, server in self._servers.items()}

    @property
    def not_after_s(self) -> dict[int, int]:
        """The end of each listener's certificate, in seconds since 1970, by listener index."""
        entries = enumerate(self.listeners) if self._servers else ()
        return {index: self._servers[entry.name].not_after_s for index, entry in entries if entry.name in self._servers}

    def follow(self, live: Settings) -> None:
        """Apply these settings to new connections; if they are unusable, keep the earlier ones."""
        self._live = live
        config = live.broker_config
        self._timeout_ns = config.connection_handshake_timeout_ms * _NS_PER_MS
        self._most = config.max_connection_handshakes
        for listener in config.bound_listeners:
            settings = tls_of(config, listener)
            if settings is not None and self._followed.get(listener.name) != (settings, live.certificate_readings):
                self._followed[listener.name] = settings, live.certificate_readings
                self._renew(settings)

    def begin(self, channel: Channel) -> None:
        """Start the handshake of a new channel, if its listener uses TLS."""
        if not self.listeners or self.listeners[channel.listener].protocol not in PROTOCOLS:
            return
        from rotunda.broker.network.processor.tls.tls_handshake import TlsHandshake  # noqa: PLC0415 - there is a listener of TLS

        listener = self.listeners[channel.listener]
        name = listener.name
        if name not in self._servers and self._live is not None and self._live.refresh(at_once=True):
            # The listener is new, and its first connection arrived before its settings.
            self.follow(self._live)
        channel.tls = handshake = TlsHandshake(
            channel, self._servers.get(name), self._ready, has_names=listener.reached_port > 0
        )
        channel.recv = handshake.recv
        self._under_way[channel] = self._now_ns()

    def late(self, now_ns: int) -> Iterator[tuple[Channel, AuthenticationFailed]]:
        """Yield the channels of aborted handshakes, with the reason."""
        while self._under_way:
            channel, began_ns = next(iter(self._under_way.items()))
            if now_ns - began_ns >= self._timeout_ns:
                reason = "no completed TLS handshake within connection.handshake.timeout.ms"
            elif len(self._under_way) > self._most:
                reason = "the oldest TLS handshake above max.connection.handshakes"
            else:
                return
            del self._under_way[channel]
            yield channel, AuthenticationFailed(reason)

    def forget(self, channel: Channel) -> None:
        """Release the TLS state of a closed channel.

        The channel exists until it has been counted; the memory of OpenSSL's connection is too large to keep that long.
        """
        self._under_way.pop(channel, None)
        channel.tls = None
        channel.sock = self._closed
        channel.recv, channel.send, channel.sendfile = self._closed.recv, self._closed.send, None

    def _ready(self, channel: Channel) -> None:
        self._under_way.pop(channel, None)
        self.done_count += 1
        if channel.session and self.clients is not None:
            self.clients.authenticated(channel)

    def _renew(self, settings: ListenerTls) -> None:
        from rotunda.broker.security.tls.contexts import make  # noqa: PLC0415 - there is a listener of TLS

        try:
            self._servers[settings.listener] = make(settings)
        except ConfigError as error:
            is_kept = settings.listener in self._servers
            kept = "it keeps the previous certificate" if is_kept else "it rejects all connections"
            logger.error("%s; %s", error, kept)
