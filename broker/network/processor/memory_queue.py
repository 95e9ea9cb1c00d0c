"""The queue for request memory: who gets the next block of the arena, and who has to give a block back (`B14`).

Runs in processor processes. A channel whose request finds no room waits here, in order of coming. Smaller requests may
pass one that waits for a large block, but only for `PASSED_NS`: from then on what is given back is kept for it, so that
it cannot starve (`B15`). While somebody waits, a channel that holds a block for half a request has to go on sending it,
so fast that it is whole within `WHOLE_WITHIN_S`: a sender that drips takes memory from others as one that is silent
does (`C04`). The one request that is larger than the arena has a place (`MemoryPool`) and a queue of its own.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from rotunda.broker.errors import InvalidReceive
from rotunda.broker.network.processor.throttling.mute_state import MuteCause

if TYPE_CHECKING:
    from rotunda.broker.network.processor.channel import Channel
    from rotunda.broker.network.processor.request_sender import Block, RequestSender

#: How long others may pass the one that has waited longest. By then handlers have answered what they had.
PASSED_NS: Final = 250_000_000

#: While others wait for memory, what a channel with half a request sends at least in `LEAST_EVERY_NS`: this part of it.
WHOLE_WITHIN_S: Final = 60
LEAST_BYTES: Final = 4096
LEAST_EVERY_NS: Final = 1_000_000_000

#: How often it is looked who holds memory that others wait for.
SHORTAGE_CHECK_NS: Final = 100_000_000


class MemoryQueue:
    """The channels of one processor that wait for a block, and those that hold one for half a request."""

    def __init__(self, sender: RequestSender) -> None:
        self._sender = sender
        #: By channel, since when it waits, in ns: for a block of the arena, and for the place beside it.
        self._waiting: tuple[dict[Channel, int], dict[Channel, int]] = ({}, {})
        #: By channel, when it had how many bytes of its request.
        self._receiving: dict[Channel, tuple[int, int]] = {}
        self._next_check_ns = 0

    @property
    def is_short(self) -> bool:
        """Whether some channel waits for a block that it would take now. HOT: once a turn."""
        arena, beside = self._waiting
        if not arena and not beside:
            return False
        return any(channel.muted == MuteCause.ARENA for waiting in self._waiting for channel in waiting)

    def allocate(self, channel: Channel, size: int, now_ns: int) -> Block | None:
        """Return a block for a channel's request of `size` bytes; None, and it waits, when it is not its turn."""
        waiting = self._waiting[size > self._sender.pool.size]
        # One that is muted for something else as well keeps its place, and holds up nobody.
        in_turn = (each for each in waiting.items() if each[0] is channel or each[0].muted == MuteCause.ARENA)
        first, since_ns = next(in_turn, (channel, now_ns))
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
        """Note that a channel's request is whole: its block is given back by its target."""
        self._receiving.pop(channel, None)

    def forget(self, channel: Channel) -> None:
        """Take a channel out: it is closed, or what it waited for is refused."""
        self.received(channel)
        for waiting in self._waiting:
            waiting.pop(channel, None)

    def too_slow(self, now_ns: int) -> list[tuple[Channel, InvalidReceive]]:
        """Return the channels that hold a block and hardly send while others wait (`C04`), and why they are closed.

        To be called behind poll and reads, while memory is short: what a client has sent while this process stood still
        has been read by then. A throttled one may not send.
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
                slow.append((channel, InvalidReceive(f"{slowness(channel)}, and memory is short")))
        return slow


def least_bytes(size: int) -> int:
    """Return how much of a request of `size` bytes its client sends in each `LEAST_EVERY_NS` at least."""
    return max(LEAST_BYTES, size // WHOLE_WITHIN_S)


def slowness(channel: Channel) -> str:
    """Return how slowly a channel sends its request, for the line that says why it is closed."""
    large = channel.large
    if large is None:
        return "silent within a request"
    seconds = LEAST_EVERY_NS // 1_000_000_000
    return f"less than {least_bytes(large.size)} bytes in {seconds} s after {large.filled} of {large.size} of a request"
