"""The queue for request memory: the order in which channels get blocks of the arena, or lose them (`B14`).

Runs in processor processes. A channel without room for its request waits, in order of arrival. Smaller requests may
pass one that waits for a large block, but only for `PASSED_NS`: after that freed memory is reserved for it, so that it
cannot starve (`B15`). While a channel waits, one that holds a block for half a request must keep sending, fast enough
to complete the request within `WHOLE_WITHIN_S`: a slow sender withholds memory from others as a silent one does
(`C04`). The one request that is larger than the arena has the spill area (`MemoryPool`) and its own queue.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from rotunda.broker.errors import InvalidReceive
from rotunda.broker.network.processor.throttling.mute_state import MuteCause

if TYPE_CHECKING:
    from rotunda.broker.network.processor.channel import Channel
    from rotunda.broker.network.processor.request_sender import Block, RequestSender

#: How long others may pass the longest waiting channel. By then handlers have completed their earlier requests.
PASSED_NS: Final = 250_000_000

#: While memory is short, a channel with half a request must send this part of it in each `LEAST_EVERY_NS`.
WHOLE_WITHIN_S: Final = 60
LEAST_BYTES: Final = 4096
LEAST_EVERY_NS: Final = 1_000_000_000

#: How often the holders of memory are checked while others wait for it.
SHORTAGE_CHECK_NS: Final = 100_000_000


class MemoryQueue:
    """The channels of one processor that wait for a block, and those that hold one for half a request."""

    def __init__(self, sender: RequestSender) -> None:
        self._sender = sender
        #: By channel, the start of its wait, in ns: for a block of the arena, and for the spill area.
        self._waiting: tuple[dict[Channel, int], dict[Channel, int]] = ({}, {})
        #: By channel: a time, and the bytes of its request received by then.
        self._receiving: dict[Channel, tuple[int, int]] = {}
        self._next_check_ns = 0

    @property
    def is_short(self) -> bool:
        """Whether some channel waits for a block and for nothing else. HOT: once per iteration."""
        arena, also = self._waiting
        if not arena and not also:
            return False
        return any(channel.muted == MuteCause.ARENA for waiting in self._waiting for channel in waiting)

    def allocate(self, channel: Channel, size: int, now_ns: int) -> Block | None:
        """Return a block for a channel's request of `size` bytes, or None: the channel is queued."""
        waiting = self._waiting[size > self._sender.pool.size]
        # A channel muted for another cause too keeps its position, and blocks no other.
        eligible = (each for each in waiting.items() if each[0] is channel or each[0].muted == MuteCause.ARENA)
        first, since_ns = next(eligible, (channel, now_ns))
        block = None
        if first is channel or now_ns - since_ns < PASSED_NS:
            block = self._sender.allocate(size)
        if block is None:
            waiting.setdefault(channel, now_ns)
        else:
            waiting.pop(channel, None)
            self._receiving[channel] = now_ns, 0
        return block

    def received(self, channel: Channel) -> None:
        """Record that a channel's request is complete: its target frees the block."""
        self._receiving.pop(channel, None)

    def forget(self, channel: Channel) -> None:
        """Remove a channel: it is closed, or the request it waited for is rejected."""
        self.received(channel)
        for waiting in self._waiting:
            waiting.pop(channel, None)

    def too_slow(self, now_ns: int) -> list[tuple[Channel, InvalidReceive]]:
        """Return channels that hold a block but send too slowly (`C04`), with the reason to close them.

        Call after poll and reads, while memory is short: bytes sent while this process was stalled have been read by
        then. A throttled channel is exempt: it may not send.
        """
        if now_ns < self._next_check_ns:
            return []
        self._next_check_ns = now_ns + SHORTAGE_CHECK_NS
        slow = []
        for channel, (noted_ns, noted_bytes) in self._receiving.items():
            large = channel.large
            if large is None or channel.muted & MuteCause.THROTTLED:
                continue
            if large.filled - noted_bytes >= least_bytes(large.size):
                self._receiving[channel] = now_ns, large.filled
            elif now_ns - noted_ns >= LEAST_EVERY_NS:
                slow.append((channel, InvalidReceive(f"{slowness(channel)}, while memory is short")))
        return slow


def least_bytes(size: int) -> int:
    """Return the fewest bytes a client must send of a request of `size` bytes in each `LEAST_EVERY_NS`."""
    return max(LEAST_BYTES, size // WHOLE_WITHIN_S)


def slowness(channel: Channel) -> str:
    """Return the reason for closing a slow sender, for the log line."""
    large = channel.large
    if large is None:
        return "no data within a request"
    seconds = LEAST_EVERY_NS // 1_000_000_000
    return f"less than {least_bytes(large.size)} bytes in {seconds} s after {large.filled} of {large.size} of a request"
