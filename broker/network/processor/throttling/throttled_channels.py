"""The channels muted because their clients have exceeded a quota, with the end of each mute.

Runs in processor processes. The mute starts when the response with the throttle time is read from its ring, before it
is written (`D09`), whatever version the client uses (`E16`). Of overlapping times the latest end counts (`B12`). A
closed channel is dropped silently (`B28`).
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
    """The throttled channels of one processor, by end of the mute (`E17`)."""

    __slots__ = ("_until_ns", "count", "ends")

    def __init__(self) -> None:
        #: (end, connection id) of each throttle time, expired or not. HOT: usually empty.
        self.ends: list[tuple[int, int]] = []
        self._until_ns: dict[int, int] = {}
        #: Throttle times started.
        self.count = 0

    def __len__(self) -> int:
        return len(self._until_ns)

    def begin(self, channel: Channel, now_ns: int, throttle_ms: int) -> None:
        """Mute a channel for this time, or until the end of a longer earlier one."""
        until_ns = now_ns + throttle_ms * _NS_PER_MS
        channel.muted |= MuteCause.THROTTLED
        self.count += 1
        if until_ns > self._until_ns.get(channel.connection_id, 0):
            self._until_ns[channel.connection_id] = until_ns
            heappush(self.ends, (until_ns, channel.connection_id))

    def wait_ms(self, now_ns: Callable[[], int], most_ms: int) -> int:
        """Return how long the loop may sleep: until the next mute ends, at most ``most_ms``. HOT."""
        if not self.ends:
            return most_ms
        return max(0, min(most_ms, -((now_ns() - self.ends[0][0]) // _NS_PER_MS)))

    def ended(self, now_ns: int, by_id: Mapping[int, Channel]) -> Iterator[Channel]:
        """Yield channels with an expired throttle time, after clearing the mute; ``by_id``: the open channels."""
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
