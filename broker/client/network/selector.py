"""Socket connections of one client: epoll, idle timeouts and the wake-up (`G37`).

Runs on the I/O thread; `wakeup` is thread-safe. A request is written at once; only the bytes that do not fit into the
socket buffer wait for epoll. All available responses are read. Kafka's Selector.
"""

from __future__ import annotations

import logging
import math
import os
import select
import threading
from contextlib import suppress
from typing import TYPE_CHECKING

from rotunda.broker.client.access import Access
from rotunda.broker.client.errors import AuthenticationFailed, IllegalState, NetworkFailure, UnsupportedVersion
from rotunda.broker.client.network.channel import (
    Channel,
    ChannelPhase,
    ChannelState,
    Endpoint,
    PlainTransport,
    TlsTransport,
)
from rotunda.broker.client.network.network_config import NetworkConfig
from rotunda.broker.client.network.requests import NetworkReceive, NetworkSend
from rotunda.broker.errors import InvalidReceive

if TYPE_CHECKING:
    from rotunda.broker.clock import Clock

logger = logging.getLogger(__name__)
_NANOSECONDS = 1_000_000
_READ = select.EPOLLIN
_WRITE = select.EPOLLOUT
_EVENTS_AT_ONCE = 64


class NodeTraffic:
    """Traffic counters of one broker."""

    __slots__ = ("bytes_received", "bytes_sent", "largest_request_bytes", "requests", "responses")

    def __init__(self) -> None:
        self.requests = self.responses = self.bytes_sent = self.bytes_received = self.largest_request_bytes = 0

    def sent(self, size_bytes: int) -> None:
        self.requests += 1
        self.bytes_sent += size_bytes
        if size_bytes > self.largest_request_bytes:
            self.largest_request_bytes = size_bytes

    def received(self, size_bytes: int, responses: int) -> None:
        self.bytes_received += size_bytes
        self.responses += responses


class SelectorCounts:
    """Counters of connections and of TLS or SASL authentications; renewals re-authenticate a live session."""

    __slots__ = ("authentications", "connections_closed", "connections_created", "failed_authentications", "renewals")

    def __init__(self) -> None:
        self.connections_created = self.connections_closed = 0
        self.authentications = self.failed_authentications = self.renewals = 0


class Selector:
    """`Selectable` over sockets."""

    def __init__(self, config: NetworkConfig, access: Access, clock: Clock) -> None:
        self.connected: list[int] = []
        self.disconnected: dict[int, ChannelState] = {}
        self.completed_sends: list[NetworkSend] = []
        self.completed_receives: list[NetworkReceive] = []
        #: By broker; bootstrap servers have negative ids.
        self.traffic: dict[int, NodeTraffic] = {}
        self.counts = SelectorCounts()
        self._access = access
        self._client_id = config.client_id
        self._clock = clock
        self._authenticates = access.context is not None or access.authenticates
        self._max_idle_ms = config.connections_max_idle_ms if config.connections_max_idle_ms >= 0 else math.inf
        self._epoll = select.epoll(flags=select.EPOLL_CLOEXEC)
        self._wake_fd = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
        self._epoll.register(self._wake_fd, _READ)
        self._wake_lock = threading.Lock()
        self._is_selecting = False
        self._is_woken = False
        self._channels: dict[int, Channel] = {}
        self._by_fd: dict[int, Channel] = {}
        self._interest: dict[int, int] = {}
        #: Connections by their last use, least recently used first.
        self._last_used_ms: dict[int, float] = {}
        self._next_idle_check_ms = self._now_ms() + self._max_idle_ms
        self._failed_sends: dict[int, ChannelState] = {}
        #: Connections that epoll will not report: connected at once, or with bytes buffered outside the socket.
        self._without_event: list[Channel] = []

    def connect(self, node_id: int, endpoint: Endpoint, send_buffer_bytes: int, receive_buffer_bytes: int) -> None:
        """Start to connect. Raises OSError if the attempt fails at once."""
        if node_id in self._channels:
            raise IllegalState(f"a connection to node {node_id} already exists")
        plain = PlainTransport(endpoint, send_buffer_bytes, receive_buffer_bytes)
        transport: PlainTransport | TlsTransport = plain
        if self._access.context is not None:
            transport = TlsTransport(plain, self._access.context, endpoint.host)
        channel = Channel(node_id, transport, self._access, self._client_id, f"{endpoint.host}:{endpoint.port}")
        self._channels[node_id] = self._by_fd[channel.fd] = channel
        self._epoll.register(channel.fd, _WRITE)
        self._interest[channel.fd] = _WRITE
        self._last_used_ms[node_id] = self._now_ms()
        self.traffic.setdefault(node_id, NodeTraffic())
        if plain.is_connected:
            self._without_event.append(channel)

    def send(self, send: NetworkSend) -> None:
        """Send as much as the socket accepts, the rest in `poll`. Failures are reported by the next `poll`."""
        channel = self._channels.get(send.node_id)
        if channel is None or channel.has_send:
            raise IllegalState(f"node {send.node_id} is not connected, or its previous request is still being sent")
        channel.begin_send(send)
        try:
            channel.begin_renewal_if_due(self._now_ms())
            if channel.write() is not None:
                self.traffic[send.node_id].sent(send.size)
        except OSError as failure:
            self._close(channel)
            self._failed_sends[send.node_id] = channel.state._replace(cause=failure)
            return
        self._watch(channel)

    def poll(self, timeout_ms: float) -> None:
        """Process ready I/O, or wait for it."""
        self.connected, self.completed_sends, self.completed_receives = [], [], []
        self.disconnected, self._failed_sends = self._failed_sends, {}
        channels, self._without_event = self._without_event, []
        if channels or self.disconnected:
            timeout_ms = 0
        events = self._select(timeout_ms)
        now_ms = self._now_ms()
        for channel in channels:
            if self._channels.get(channel.node_id) is channel:
                self._handle(channel, _READ, now_ms)
        for fd, mask in events:
            ready = self._by_fd.get(fd)
            if ready is not None and ready not in channels:
                self._handle(ready, mask, now_ms)
        if now_ms > self._next_idle_check_ms:
            self._close_idle_connection(now_ms)

    def wakeup(self) -> None:
        """Wake the current wait, or the next one. Thread-safe.

        A system call is made only if the I/O thread waits, and once per wait. The race is closed by order: this method
        sets its flag and then reads the I/O thread's flag; `poll` sets its own flag and then reads this one.
        """
        if self._is_woken:
            return
        self._is_woken = True
        if self._is_selecting:
            with self._wake_lock:
                # After close the descriptor number may belong to another file.
                if not self._epoll.closed:
                    os.eventfd_write(self._wake_fd, 1)

    @property
    def connection_count(self) -> int:
        """Number of connections, including those being established."""
        return len(self._channels)

    def is_channel_ready(self, node_id: int) -> bool:
        """Whether a connection is established and, with TLS and SASL, authenticated."""
        channel = self._channels.get(node_id)
        return channel is not None and channel.ready

    def close_channel(self, node_id: int) -> None:
        """Close a connection if it exists, without an entry in `disconnected`."""
        channel = self._channels.get(node_id)
        if channel is not None:
            self._close(channel)
        self._failed_sends.pop(node_id, None)

    def close(self) -> None:
        for channel in list(self._channels.values()):
            self._close(channel)
        with self._wake_lock:
            self._epoll.close()
            os.close(self._wake_fd)

    def _select(self, timeout_ms: float) -> list[tuple[int, int]]:
        self._is_selecting = True
        if self._is_woken:
            timeout_ms = 0
        try:
            events = self._epoll.poll(None if math.isinf(timeout_ms) else timeout_ms / 1000, _EVENTS_AT_ONCE)
        finally:
            self._is_selecting = self._is_woken = False
        for fd, _ in events:
            if fd == self._wake_fd:
                os.eventfd_read(fd)
        return events

    def _handle(self, channel: Channel, mask: int, now_ms: float) -> None:
        """Handle a connection's events; close the connection if it ended or failed."""
        self._used(channel, now_ms)
        ended, was_ready = True, channel.ready
        try:
            ended = self._advance(channel, mask, now_ms)
        except OSError as failure:
            logger.debug("closing the connection to node %s (%s): %s", channel.node_id, channel.remote, failure)
            channel.state = channel.state._replace(cause=failure)
        except AuthenticationFailed as failure:
            self.counts.failed_authentications += 1
            channel.state = ChannelState(ChannelPhase.AUTHENTICATION_FAILED, channel.remote, failure)
        except (InvalidReceive, NetworkFailure, UnsupportedVersion) as failure:
            logger.warning("connection to node %s (%s) closed: %s", channel.node_id, channel.remote, failure)
            channel.state = channel.state._replace(cause=failure)
        if channel.ready and not was_ready and self._authenticates:
            if channel.is_renewed:
                self.counts.renewals += 1
            else:
                self.counts.authentications += 1
        if ended:
            self._close(channel)
            self.disconnected[channel.node_id] = channel.state
        else:
            self._watch(channel)

    def _advance(self, channel: Channel, mask: int, now_ms: float) -> bool:
        """Connect, prepare, read and write; return whether the broker closed the connection. Raises their errors."""
        ended = False
        if not channel.is_connected:
            channel.finish_connect()
            self.connected.append(channel.node_id)
            self.counts.connections_created += 1
        if not channel.ready:
            channel.prepare(now_ms)
        if channel.transport.ready:
            if mask & ~_WRITE:
                ended = self._read(channel, now_ms)
            if not ended and channel.wants_write:
                self._write(channel)
        return ended

    def _read(self, channel: Channel, now_ms: float) -> bool:
        before, receives = channel.bytes_received, len(self.completed_receives)
        ended = channel.read(self.completed_receives, now_ms)
        self.traffic[channel.node_id].received(channel.bytes_received - before, len(self.completed_receives) - receives)
        if channel.transport.has_bytes_buffered and not ended:
            self._without_event.append(channel)
        return ended

    def _write(self, channel: Channel) -> None:
        send = channel.write()
        if send is not None:
            self.traffic[send.node_id].sent(send.size)
            self.completed_sends.append(send)

    def _watch(self, channel: Channel) -> None:
        """Register with epoll for reads, and for writes if data is pending."""
        fd = channel.fd
        wanted = _READ | _WRITE if channel.wants_write else _READ
        if self._interest[fd] != wanted:
            self._epoll.modify(fd, wanted)
            self._interest[fd] = wanted

    def _used(self, channel: Channel, now_ms: float) -> None:
        used = self._last_used_ms
        used.pop(channel.node_id, None)
        used[channel.node_id] = now_ms

    def _close_idle_connection(self, now_ms: float) -> None:
        """Close the least recently used connection if its idle timeout has passed; at most one per poll."""
        oldest = next(iter(self._last_used_ms.items()), None)
        self._next_idle_check_ms = (now_ms if oldest is None else oldest[1]) + self._max_idle_ms
        if oldest is None or now_ms <= self._next_idle_check_ms:
            return
        channel = self._channels[oldest[0]]
        self._close(channel)
        self.disconnected[channel.node_id] = ChannelState(ChannelPhase.EXPIRED, channel.remote)

    def _close(self, channel: Channel) -> None:
        fd = channel.fd
        with suppress(OSError):
            # If TLS could not be started, the socket is closed and already removed from epoll.
            self._epoll.unregister(fd)
        del self._channels[channel.node_id], self._by_fd[fd], self._interest[fd]
        self._last_used_ms.pop(channel.node_id, None)
        channel.close()
        self.counts.connections_closed += 1

    def _now_ms(self) -> float:
        return self._clock.monotonic_ns() / _NANOSECONDS
