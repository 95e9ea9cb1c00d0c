"""The request rings of one target, one from each processor, as many as there have been processors.

Runs in handler processes and the controller. Frames are read in order and usually released a batch at a time. A
processor that is added while the broker runs gets its ring before it starts; the ring of one that has gone stays and is
read on: what is in it was sent before, and its next generation begins where it ended.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterator
from typing import TYPE_CHECKING

from rotunda.broker.ipc.request import RequestRing, RingFrame
from rotunda.broker.ipc.request_channel import REQUEST
from rotunda.shm.layout import REQUEST_ENVELOPE

if TYPE_CHECKING:
    from rotunda.broker.ipc.request_channel import RequestChannel
    from rotunda.broker.ipc.response_writer import ResponseWriter

_EVERYTHING = 1 << 30
_RECEIVED_NS = [each.name for each in REQUEST_ENVELOPE.fields].index("received_ns")


#: A ring, and frames that have been read from it.
RingBatch = tuple[RequestRing, list[RingFrame]]


class RequestRings:
    """The reading ends. What may not be answered now is not read: ``responses`` knows."""

    def __init__(self, channel: RequestChannel, target: int, responses: ResponseWriter) -> None:
        self._channel = channel
        self._target = target
        self._responses = responses
        self._rings: list[RequestRing] = []
        self._grow()

    def unreleased(self) -> list[RingBatch]:
        """Return what predecessors have left, as `unreleased` does."""
        return unreleased(self._channel.view, self._rings)

    def read(self, limit: int) -> list[RingBatch]:
        """Return up to ``limit`` new frames of each ring that has some. HOT: once a turn."""
        rings, responses = self._rings, self._responses
        if self._channel.processors != len(rings):
            self._grow()
        read = []
        for processor, ring in enumerate(rings):
            if responses.are_waiting and responses.blocked(processor):
                continue
            frames = ring.read(limit)
            if frames:
                read.append((ring, frames))
        return read

    def release(self) -> None:
        """Give back what has been taken and is answered. HOT: once a turn."""
        responses = self._responses
        for processor, ring in enumerate(self._rings):
            if not responses.are_waiting or not responses.blocked(processor):
                ring.release()

    @property
    def are_waiting(self) -> bool:
        """Whether something holds up a ring that no bell announces the end of. HOT: before each sleep."""
        if self._responses.are_waiting:
            return True
        for ring in self._rings:  # noqa: SIM110 - a generator costs more than the loop
            if ring.holding:
                return True
        return False

    def _grow(self) -> None:
        # SYNC: the number before the rings; pairs with the store in BrokerWords.set_processors_made.
        processors = self._channel.processors
        self._responses.grow(processors)
        for processor in range(len(self._rings), processors):
            self._rings.append(RequestRing(self._channel.request_consumer(processor, self._target), processor))


def unreleased(view: memoryview, rings: list[RequestRing]) -> list[RingBatch]:
    """Return what is in the rings: the requests that a killed target has left for the one that takes its place.

    They are returned in the order in which they were *received*, whichever ring they are in, because Produces are taken
    again from there: their notes say what became of them. All others bear the generation of the target that they were
    sent to, and a replacement passes over those that were sent to another: each processor reads the answers that its
    target has left, and then sends again what has none. So nothing that was answered is done a second time, which its
    client may have built upon since.
    """
    runs: list[RingBatch] = []
    for _, processor, frame in heapq.merge(*(_arrivals(view, ring) for ring in rings)):
        ring = rings[processor]
        if not runs or runs[-1][0] is not ring:
            runs.append((ring, []))
        runs[-1][1].append(frame)
    return runs


def _arrivals(view: memoryview, ring: RequestRing) -> Iterator[tuple[int, int, RingFrame]]:
    """Yield (when it was received at the earliest, processor, frame); a ring's own order stays as it is."""
    latest_ns = 0
    for frame in ring.read(_EVERYTHING):
        latest_ns = max(latest_ns, REQUEST.unpack_from(view, frame[0])[_RECEIVED_NS])
        yield latest_ns, ring.processor, frame
