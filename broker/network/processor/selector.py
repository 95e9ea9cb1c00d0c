"""epoll over the channels of one processor, and the list of idle ones.

Runs in processor processes. The code relies on four facts about epoll: interest is level-triggered, so a channel with
unread bytes is reported at every poll until it is read or its interest is removed; a bell is edge-triggered, so each
poll reports the rings since the one before, and nobody has to read them; EPOLLHUP and EPOLLERR are always
reported, so a muted channel whose client has disconnected must leave the set altogether; and a closed descriptor leaves
the set by itself, but only if no other process holds a copy, so it is always unregistered first.
"""

from __future__ import annotations

import select
from collections import OrderedDict
from collections.abc import Callable, Iterator

from rotunda.broker.network.processor.channel import Channel
from rotunda.broker.network.processor.throttling.mute_state import MuteCause
from rotunda.broker.server_log.slow_turns import LONG_NS

READ = select.EPOLLIN
WRITE = select.EPOLLOUT
#: A client that closed its side is reported, as EPOLLRDHUP, if it is not read because it is throttled.
GONE = select.EPOLLHUP | select.EPOLLERR | select.EPOLLRDHUP

MAX_EVENTS = 512

#: The share of an iteration for continuing writes. Clients that read as fast as responses are written could otherwise
#: receive all requested data in one iteration.
WRITING_NS = 8_000_000


class Selector:
    """The registered channels in order of their last activity, least recent first."""

    def __init__(self) -> None:
        self._epoll = select.epoll(flags=select.EPOLL_CLOEXEC)
        self.channels: OrderedDict[int, Channel] = OrderedDict()
        #: Channels to read, first those left from the last iteration.
        self.readable: dict[Channel, None] = {}
        #: Channels with sockets that accept more output, in the same order.
        self.writable: OrderedDict[Channel, None] = OrderedDict()

    def watch(self, fd: int) -> None:
        """Report a descriptor that is not a channel, such as the hand-off socket, when it is readable."""
        self._epoll.register(fd, READ)

    def watch_bell(self, fd: int) -> None:
        """Report a bell that was rung since the last poll, or before this call."""
        self._epoll.register(fd, READ | select.EPOLLET)

    def unwatch(self, fd: int) -> None:
        """Stop reporting a watched descriptor."""
        self._epoll.unregister(fd)

    def register(self, channel: Channel) -> None:
        """Register a channel, for reading only: write interest depends on unsent responses (``B08``).

        Raises OSError, without registering it, if the kernel has no room for it.
        """
        self._epoll.register(channel.fd, READ)
        channel.interest = READ
        self.channels[channel.fd] = channel

    def unregister(self, channel: Channel) -> None:
        """Unregister a channel before its socket is closed."""
        del self.channels[channel.fd]
        self.readable.pop(channel, None)
        self.writable.pop(channel, None)
        if channel.interest >= 0:
            self._epoll.unregister(channel.fd)

    def update(self, channel: Channel) -> None:
        """Set the channel's interest: reads while not muted, writes while output is unsent."""
        wanted = (0 if channel.muted else READ) | (WRITE if channel.unsent else 0)
        if not wanted and channel.muted & MuteCause.THROTTLED:
            wanted = select.EPOLLRDHUP
        if wanted == channel.interest:
            return
        if wanted & READ and channel.tls is not None and channel.tls.has_pending:
            self.readable[channel] = None
        if channel.interest < 0:
            if wanted:
                self._epoll.register(channel.fd, wanted)
                channel.interest = wanted
            return
        self._epoll.modify(channel.fd, wanted)
        channel.interest = wanted

    def set_aside(self, channel: Channel) -> None:
        """Stop the events of a muted channel after its client disconnected; ``update`` restores them (``B19``)."""
        if channel.interest >= 0:
            self._epoll.unregister(channel.fd)
            channel.interest = -1

    def poll(self, timeout_ms: int) -> list[tuple[int, int]]:
        """Wait up to ``timeout_ms`` (0: not at all, -1: for ever) and return (descriptor, events) pairs."""
        try:
            return self._epoll.poll(timeout_ms / 1000 if timeout_ms > 0 else timeout_ms, MAX_EVENTS)
        except InterruptedError:
            return []

    def next_readable(self, now_ns: Callable[[], int]) -> Iterator[Channel]:
        """Yield the channels to read, until the time is used up: each may have sent very many requests."""
        end_ns = now_ns() + LONG_NS
        channels, self.readable, left = iter(self.readable), {}, []
        try:
            for channel in channels:
                if now_ns() >= end_ns:
                    left.append(channel)
                    break
                # A channel muted in the meantime is reported again after its mute.
                if not channel.muted:
                    yield channel
        finally:
            left += channels
            if left:
                self.readable = dict.fromkeys(left) | self.readable

    def next_writable(self, now_ns: Callable[[], int]) -> Iterator[Channel]:
        """Yield the channels to write to, until the time is used up."""
        end_ns = now_ns() + WRITING_NS
        while self.writable and now_ns() < end_ns:
            yield self.writable.popitem(last=False)[0]

    def idle_since(self, before_ns: int) -> Channel | None:
        """Return the least recently active channel if it was last active before ``before_ns`` (``B17``)."""
        for channel in self.channels.values():
            return channel if channel.last_active_ns < before_ns else None
        return None
