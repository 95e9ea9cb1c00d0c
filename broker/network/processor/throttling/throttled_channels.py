"""The channels that are muted because their clients have used up a quota, and until when each is.

Runs in processor processes. The mute begins as the answer with the throttle time is taken from its ring, before it is
written (`D09`), and whatever version the client speaks (`E16`). Of several times that overlap the latest end counts
(`B12`). A channel that has gone is forgotten in silence (`B28`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from heapq import heappop, heappush
from typing import TYPE_CHECKING, Final

from rotunda.broker.network.processor.throttling.mute_state import MuteCause

if TYPE_CHECKING:
    from rotunda.broker.network.processor.channel import Channel

_NS_PER_MS: Final = 1_000_000


class ThrottledChannels:
    """The throttled channels of one processor, by when they may be read again (`E17`)."""

    __slots__ = ("_until_ns", "count", "ends")

    def __init__(self) -> None:
        #: (when it ends, connection id) of each time, over or not. HOT: empty, usually.
        self.ends: list[tuple[int, int]] = []
        self._until_ns: dict[int, int] = {}
        #: Throttle times that have been begun.
        self.count = 0

    def __len__(self) -> int:
        return len(self._until_ns)

    def begin(self, channel: Channel, now_ns: int, throttle_ms: int) -> None:
        """Mute a channel for that time, or for longer if it has been throttled for longer already."""
        until_ns = now_ns + throttle_ms * _NS_PER_MS
        channel.muted |= MuteCause.THROTTLED
        self.count += 1
        if until_ns > self._until_ns.get(channel.connection_id, 0):
            self._until_ns[channel.connection_id] = until_ns
            heappush(self.ends, (until_ns, channel.connection_id))

    def wait_ms(self, now_ns: Callable[[], int], most_ms: int) -> int:
        """Return for how long the loop may sleep: until the next channel may be read, and at most so long. HOT."""
        if not self.ends:
            return most_ms
        return max(0, min(most_ms, -((now_ns() - self.ends[0][0]) // _NS_PER_MS)))

    def ended(self, now_ns: int, by_id: Mapping[int, Channel]) -> Iterator[Channel]:
        """Yield the channels whose time is over, which are muted for it no more; ``by_id``: those that are there."""
        ends = self.ends
        while ends and ends[0][0] <= now_ns:
            until_ns, connection_id = heappop(ends)
            if self._until_ns.get(connection_id) != until_ns:
                continue
            del self._until_ns[connection_id]
            channel = by_id.get(connection_id)
            if channel is not None:
                channel.muted &= ~MuteCause.THROTTLED
                yield channel
