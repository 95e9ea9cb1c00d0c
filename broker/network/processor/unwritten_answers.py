"""The unwritten answers of a processor that stops, and whether they are still waited for.

Runs in processor processes, while they drain. A client that takes nothing of its answers for a while is not waited for:
they cannot be delivered, a Produce's neither, and would only hold up the stop of the broker.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from rotunda.broker.network.processor.channel import Channel

#: A client that takes nothing for this long is not waited for.
UNREAD_NS: Final = 400_000_000


class UnwrittenAnswers:
    """The channels whose answers wait for their clients, each with how many bytes and since when."""

    def __init__(self, now_ns: Callable[[], int]) -> None:
        self._now_ns = now_ns
        self._waiting: dict[int, tuple[int, int]] = {}

    def are_left(self, channels: Iterable[Channel], *, produce_only: bool) -> bool:
        """Return whether answers are still waited for (`Channel.is_drained`).

        ``produce_only``: those to Produce alone, and those that their clients are reading.
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
