"""The receiving end of one processor's requests, with release held back where a request is not finished.

Runs in handler processes and the controller. Frames are read in order and usually released a batch at a time. A
request that waits for another owner holds its own memory, and with it everything behind it in the ring: reading goes
on, releasing stops. What is not released is what a replacement of this process will read again.
"""

from __future__ import annotations

from bisect import insort

from shm.rings.ring import RingConsumer, RingProducer


class RingHold:
    """Keeps a request's memory until it is answered and no peer may look at it any more."""

    __slots__ = ("answered", "peers", "readers", "start")

    def __init__(self, start: int) -> None:
        self.start = start
        self.answered = False
        self.peers: list[tuple[RingProducer, int]] = []
        #: How many of its parts this process has still to look at.
        self.readers = 0

    def over(self) -> bool:
        """Return whether it is answered and nobody looks into it: here, or as a peer with frames that point there."""
        return self.answered and not self.readers and all(ring.consumed() >= position for ring, position in self.peers)


class RequestRing:
    """One request ring as its target reads it."""

    def __init__(self, ring: RingConsumer) -> None:
        #: Returns up to so many new frames as (offset of the payload, its bytes, position where the frame ends).
        self.read = ring.read
        self._release_to = ring.release_to
        self._holds: list[RingHold] = []
        #: Up to where requests have been taken. What has been read beyond it waits for its turn, and stays.
        self.cursor = ring.cursor

    def hold(self, start: int) -> RingHold:
        """Keep everything from position ``start`` on."""
        hold = RingHold(start)
        insort(self._holds, hold, key=lambda h: h.start)
        return hold

    def release(self) -> None:
        """Give back what has been taken, up to the first request that is still held. HOT: once a turn."""
        holds = self._holds
        while holds and holds[0].over():
            holds.pop(0)
        self._release_to(holds[0].start if holds else self.cursor)

    @property
    def holding(self) -> bool:
        """True while some request keeps its memory; its release needs another look without a bell."""
        return bool(self._holds)
