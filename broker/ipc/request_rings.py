"""The request rings of one target, one for each processor that was ever started.

Runs in handler processes and the controller. Frames are read in order and usually released a batch at a time. A
processor that is added while the broker runs gets its ring before it starts. The ring of a removed processor stays and
is still read: its frames were sent earlier, and the processor's next generation continues after them.
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
    """The reading ends. Rings whose responses are blocked are not read: ``responses`` reports them."""

    def __init__(self, channel: RequestChannel, target: int, responses: ResponseWriter) -> None:
        self._channel = channel
        self._target = target
        self._responses = responses
        self._rings: list[RequestRing] = []
        self._grow()

    def unreleased(self) -> list[RingBatch]:
        """Return the requests that predecessors have left, as `unreleased` does."""
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
        """Release the handled requests whose responses are in their ring. HOT: once a turn."""
        responses = self._responses
        for processor, ring in enumerate(self._rings):
            if not responses.are_waiting or not responses.blocked(processor):
                ring.release()

    @property
    def are_waiting(self) -> bool:
        """Whether a ring is blocked on an event that rings no bell. HOT: before each sleep."""
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
    """Return the unreleased frames of the rings: the requests that a killed target has left for its replacement.

    They are returned in the order in which they were *received*, whichever ring they are in, because Produces are
    handled again from there: their notes record their outcome. All other requests carry the generation of the target
    that they were sent to, and a replacement skips those that were sent to another. Each processor reads the responses
    that its target has left, and then sends the unanswered requests again. So no answered request is executed a second
    time, when its client may already have acted on the response.
    """
    runs: list[RingBatch] = []
    for _, processor, frame in heapq.merge(*(_arrivals(view, ring) for ring in rings)):
        ring = rings[processor]
        if not runs or runs[-1][0] is not ring:
            runs.append((ring, []))
        runs[-1][1].append(frame)
    return runs


def _arrivals(view: memoryview, ring: RequestRing) -> Iterator[tuple[int, int, RingFrame]]:
    """Yield (its earliest possible time of receipt, processor, frame), without reordering a ring's frames."""
    latest_ns = 0
    for frame in ring.read(_EVERYTHING):
        latest_ns = max(latest_ns, REQUEST.unpack_from(view, frame[0])[_RECEIVED_NS])
        yield latest_ns, ring.processor, frame
