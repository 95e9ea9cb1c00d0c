"""The unwritten responses of a stopping processor, and whether it still waits for them.

Runs in processor processes, while they drain. A client that reads nothing of its responses for a while is not waited
for: they cannot be delivered, even to a Produce, and would only delay the stop of the broker.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from rotunda.broker.network.processor.channel import Channel

#: A client that reads nothing for this long is not waited for.
UNREAD_NS: Final = 400_000_000


class UnwrittenResponses:
    """The channels with unsent responses: the bytes of each, and since when."""

    def __init__(self, now_ns: Callable[[], int]) -> None:
        self._now_ns = now_ns
        self._waiting: dict[int, tuple[int, int]] = {}

    def are_left(self, channels: Iterable[Channel], *, produce_only: bool) -> bool:
        """Return whether to keep waiting for responses (`Channel.is_drained`).

        ``produce_only``: wait only for those to Produce, and only while their clients read.
        """
        return not all(
            channel.is_drained(produce_only=produce_only) or (produce_only and self._is_stalled(channel))
            for channel in channels
        )

    def _is_stalled(self, channel: Channel) -> bool:
        if not channel.unsent:
            return False
        now_ns = self._now_ns()
        unsent_bytes, since_ns = self._waiting.get(channel.connection_id, (-1, now_ns))
        if unsent_bytes != channel.out_bytes:
            self._waiting[channel.connection_id] = channel.out_bytes, now_ns
            return False
        return now_ns - since_ns >= UNREAD_NS
