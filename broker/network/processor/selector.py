"""epoll over the channels of one processor, and the watch for idle ones.

Runs in processor processes. Three facts about epoll that the code relies on: interest is level-triggered, so a
channel with unread bytes is reported again at every poll until it is read or its interest is taken away; EPOLLHUP and
EPOLLERR are reported whether asked for or not, so a muted channel whose client has gone must leave the set altogether;
and a closed descriptor leaves the set by itself, but only if no other process holds a copy, so it is always
unregistered first.
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
#: A client that has ended its side is reported, as EPOLLRDHUP, where it is not read because it is throttled.
GONE = select.EPOLLHUP | select.EPOLLERR | select.EPOLLRDHUP

MAX_EVENTS = 512

#: What writing to sockets that take more gets of a turn. Clients that read as fast as answers are written
#: could have all that they have asked for in one.
WRITING_NS = 8_000_000


class Selector:
    """The registered channels in order of their last activity, least recent first."""

    def __init__(self) -> None:
        self._epoll = select.epoll(flags=select.EPOLL_CLOEXEC)
        self.channels: OrderedDict[int, Channel] = OrderedDict()
        #: Those that are to be read, first the ones that the last turn has left.
        self.readable: dict[Channel, None] = {}
        #: Those whose sockets take more of what waits, in the same order.
        self.writable: OrderedDict[Channel, None] = OrderedDict()

    def watch(self, fd: int) -> None:
        """Report a descriptor that is not a channel (a bell, the hand-off socket) when it is readable."""
        self._epoll.register(fd, READ)

    def unwatch(self, fd: int) -> None:
        """Report a watched descriptor no more."""
        self._epoll.unregister(fd)

    def register(self, channel: Channel) -> None:
        """Take in a channel, for reading only: write interest comes and goes with unsent answers (``B08``).

        Raises OSError, and then has not taken it in, when the kernel has no room for it.
        """
        self._epoll.register(channel.fd, READ)
        channel.interest = READ
        self.channels[channel.fd] = channel

    def unregister(self, channel: Channel) -> None:
        """Forget a channel whose socket is about to be closed."""
        del self.channels[channel.fd]
        self.readable.pop(channel, None)
        self.writable.pop(channel, None)
        if channel.interest >= 0:
            self._epoll.unregister(channel.fd)

    def update(self, channel: Channel) -> None:
        """Make the kernel's interest follow the channel: reads while not muted, writes while answers wait."""
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
        """Stop the reports about a muted channel whose client has gone; ``update`` brings it back (``B19``)."""
        if channel.interest >= 0:
            self._epoll.unregister(channel.fd)
            channel.interest = -1

    def poll(self, timeout_ms: int) -> list[tuple[int, int]]:
        """Wait up to ``timeout_ms`` (0: not at all, -1: for ever) and return (descriptor, events) pairs."""
        try:
            return self._epoll.poll(timeout_ms / 1000 if timeout_ms > 0 else timeout_ms, MAX_EVENTS)
        except InterruptedError:
            return []

    def take_readable(self, now_ns: Callable[[], int]) -> Iterator[Channel]:
        """Yield the channels that are to be read until they have taken long: each may have sent very many requests."""
        if not self.readable:
            return
        end_ns = now_ns() + LONG_NS
        channels, self.readable, left = iter(self.readable), {}, []
        try:
            for channel in channels:
                if now_ns() >= end_ns:
                    left.append(channel)
                    break
                # One that has been muted since is reported again once it is not.
                if not channel.muted:
                    yield channel
        finally:
            left += channels
            if left:
                self.readable = dict.fromkeys(left) | self.readable

    def take_writable(self, now_ns: Callable[[], int]) -> Iterator[Channel]:
        """Yield the channels that are to be written to until they have taken long."""
        end_ns = now_ns() + WRITING_NS
        while self.writable and now_ns() < end_ns:
            yield self.writable.popitem(last=False)[0]

    def idle_since(self, before_ns: int) -> Channel | None:
        """Return the least recently active channel if it was last active before ``before_ns`` (``B17``)."""
        for channel in self.channels.values():
            return channel if channel.last_active_ns < before_ns else None
        return None
