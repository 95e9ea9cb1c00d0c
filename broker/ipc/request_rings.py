"""The request rings of one target, one from each processor, as many as there have been processors.

Runs in handler processes and the controller. A processor that is added while the broker runs gets its ring before it
starts; the ring of one that has gone stays and is read on: what is in it was sent before, and its next generation
begins where it ended.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from broker.ipc.request_ring import RequestRing
from broker.ipc.unreleased_requests import RingFrame, unreleased

if TYPE_CHECKING:
    from broker.ipc.request_channel import RequestChannel
    from broker.ipc.response_writer import ResponseWriter


class RequestRings:
    """The reading ends. What may not be answered now is not read: ``responses`` knows."""

    def __init__(self, channel: RequestChannel, target: int, responses: ResponseWriter) -> None:
        self._channel = channel
        self._target = target
        self._responses = responses
        self._rings: list[RequestRing] = []
        self._grow()

    def __getitem__(self, processor: int) -> RequestRing:
        return self._rings[processor]

    def unreleased(self) -> list[tuple[int, list[RingFrame]]]:
        """Return what predecessors have left, as `unreleased_requests.unreleased` does."""
        return unreleased(self._channel.view, self._rings)

    def read(self, limit: int) -> list[tuple[int, list[RingFrame]]]:
        """Return up to ``limit`` new frames of each ring that has some, with its processor. HOT: once a turn."""
        rings, responses = self._rings, self._responses
        if self._channel.processors != len(rings):
            self._grow()
        read = []
        for processor, ring in enumerate(rings):
            if responses.are_waiting and responses.blocked(processor):
                continue
            frames = ring.read(limit)
            if frames:
                read.append((processor, frames))
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
            self._rings.append(RequestRing(self._channel.request_consumer(processor, self._target)))
