"""The request channel: the grid of rings between processors and targets (``D02``, ``D07``, ``D24``).

The only module that both sides import. A *target* is a process that serves requests: handlers 0..M-1 and, as target M,
the controller. Three grids share one segment: request rings (processor to target), response rings (target to processor)
and peer rings; *peers* are the targets and, after them, the cleaner. Each ring has one producer and one consumer, so no
word of it is ever contended. The layout of the frames is in ``shm.layout``; this module packs and unpacks nothing per
request.

A ring outlives its two ends: a replacement continues the producer's end at the published tail and the consumer's end at
the released head, so it reads again all frames that its predecessor had not released.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

from rotunda.broker.native import compiled
from rotunda.shm.layout import FILE_RANGE, PEER_ENVELOPE, REQUEST_ENVELOPE, RESPONSE_ENVELOPE, RING_HEADER
from rotunda.shm.rings.ring import (
    GENERATION,
    GENERATION_AT,
    HEAD,
    TAIL,
    RingConsumer,
    RingCorrupt,
    RingProducer,
    initialise,
    ring_bytes,
)
from rotunda.shm.words import words_of

#: Values of REQUEST_ENVELOPE.area: the memory that holds the bytes of a request.
INLINE, ARENA, SPILL = 0, 1, 2

#: Values of RESPONSE_ENVELOPE.kind (``D06``).
SEND, NO_OP, CLOSE_CONNECTION = 0, 1, 2
#: Added to the kind to mute the channel for the throttle time in the facts (`D06`).
THROTTLED = 4
#: Added to the kind to delay the response until its response_complete_ns, for a test (`broker.faults`).
DELAYED = 8
#: Added to SEND if the response has an error code: it may be one of a series (`D22`).
FAILED = 16

#: Requests up to this many bytes are in the ring itself; larger ones are received into the arena.
INLINE_REQUEST_BYTES = 64 * 1024

PEER_RING_BYTES = 64 * 1024

#: Peers exchange few messages: their rings need no compiled ends.
PeerProducer, PeerConsumer = RingProducer, RingConsumer

#: All rings together stay below this share of a 64 MiB /dev/shm.
RING_BUDGET_BYTES = 24 * 1024 * 1024
SMALLEST_RING_BYTES = 256 * 1024


@dataclass(frozen=True, slots=True)
class ChannelShape:
    """Maximum number of processes on either side, and the size of each data ring."""

    processors: int
    targets: int
    ring_capacity_bytes: int

    @classmethod
    def fitting(
        cls,
        processors: int,
        targets: int,
        wanted_ring_bytes: int,
        most: tuple[int, int] | None = None,
    ) -> ChannelShape:
        """Return the shape with power-of-two rings within the budget for these numbers of processors and targets.

        Rings are never smaller than one request needs. There are places for the ``most`` possible processors and
        targets.
        """
        share = RING_BUDGET_BYTES // (2 * processors * targets)
        capacity = 1 << (max(min(wanted_ring_bytes, share), SMALLEST_RING_BYTES).bit_length() - 1)
        return cls(*(most or (processors, targets)), capacity)

    @property
    def bytes_needed(self) -> int:
        """Size of the segment that holds all three grids."""
        data_rings = 2 * self.processors * self.targets
        return data_rings * ring_bytes(self.ring_capacity_bytes) + self.peers**2 * ring_bytes(PEER_RING_BYTES)

    @property
    def peers(self) -> int:
        """Number of peers: the targets, and the cleaner as the last."""
        return self.targets + 1


class RequestChannel:
    """Returns the ends of the rings; each end has one user only."""

    def __init__(
        self,
        view: memoryview,
        shape: ChannelShape,
        base: int = 0,
        made: tuple[Callable[[], int], Callable[[], int]] | None = None,
    ) -> None:
        """Use ``made`` for the numbers of processors and handlers with allocated memory; by default all have it."""
        self.view = view
        self.shape = shape
        self._base = base
        self._made = made

    @property
    def processors(self) -> int:
        """Number of processors with rings. It may rise and never falls; fewer may be in use."""
        return self.shape.processors if self._made is None else self._made[0]()

    @property
    def targets(self) -> list[int]:
        """The targets that have rings: the first handlers, used or not, and the controller."""
        controller = self.shape.targets - 1
        return [*range(controller if self._made is None else self._made[1]()), controller]

    def initialise(self) -> None:
        """Write the header of every ring with allocated memory. Called once, by the creator of the segment."""
        for processor in range(self.processors):
            for target in self.targets:
                self.initialise_pair(processor, target)
        self.initialise_peers()

    def initialise_pair(self, processor: int, target: int) -> None:
        """Write the headers of the two rings of a pair. Called once, by the process that creates the segment."""
        for base, _ in self.places(processor, target):
            initialise(self.view, base, self.shape.ring_capacity_bytes)

    def initialise_peers(self) -> None:
        """Empty the rings between peers: by the process that creates the segment, while no peer is running."""
        for index in range(self.shape.peers**2):
            initialise(self.view, self._peer_ring(index), PEER_RING_BYTES)

    def places(self, processor: int, target: int) -> list[tuple[int, int]]:
        """Return the places of the two rings of a pair, as (start, bytes)."""
        size = ring_bytes(self.shape.ring_capacity_bytes)
        return [(self._request_ring(processor, target), size), (self._response_ring(processor, target), size)]

    def requests_are_released(self) -> bool:
        """Return whether targets have released all published requests: each has its response or is waiting.

        Valid only after processors have stopped publishing.
        """
        rings = (self.request_consumer(p, t) for p in range(self.processors) for t in self.targets)
        return not any(ring.pending() for ring in rings)

    def request_producer(self, processor: int, target: int) -> RingProducer:
        """Return the processor's end of the ring that carries its requests to the target."""
        return RingProducer(self.view, self._request_ring(processor, target))

    def request_consumer(self, processor: int, target: int) -> RingConsumer:
        """Return the target's end of the same ring."""
        return RingConsumer(self.view, self._request_ring(processor, target))

    def follow(self, processor: int, target: int, generation: int) -> None:
        """Publish that a processor sends only to this generation of a target, or a later one, from now on."""
        words = self._request_words(processor, target)
        words[GENERATION_AT] = words[TAIL]
        # SYNC: the position before the generation; pairs with the loads in has_followed.
        words[GENERATION] = generation

    def has_followed(self, processor: int, target: int, generation: int, *, has_ended: bool) -> bool:
        """Return whether a target has released all requests of a processor to earlier generations, and gets no more."""
        words = self._request_words(processor, target)
        # SYNC: the generation before the position; pairs with the stores in follow.
        is_known = words[GENERATION] >= generation
        return (is_known or has_ended) and words[HEAD] >= words[GENERATION_AT if is_known else TAIL]

    def released(self) -> int:
        """Return how many bytes of requests targets have released: it grows with every finished request."""
        places = ((p, t) for p in range(self.processors) for t in self.targets)
        return sum(self.request_consumer(*place).cursor for place in places)

    def response_producer(self, processor: int, target: int) -> RingProducer:
        """Return the target's end of the ring that carries its responses to the processor."""
        return RingProducer(self.view, self._response_ring(processor, target))

    def response_consumer(self, processor: int, target: int) -> RingConsumer:
        """Return the processor's end of the same ring."""
        return RingConsumer(self.view, self._response_ring(processor, target))

    def peer_producer(self, source: int, destination: int) -> RingProducer:
        """Return the sending end of the ring between two peers."""
        return PeerProducer(self.view, self._peer_ring(source * self.shape.peers + destination))

    def peer_consumer(self, source: int, destination: int) -> RingConsumer:
        """Return the receiving end of the ring between two peers."""
        return PeerConsumer(self.view, self._peer_ring(source * self.shape.peers + destination))

    def _request_ring(self, processor: int, target: int) -> int:
        return self._data_ring(processor * self.shape.targets + target)

    def _response_ring(self, processor: int, target: int) -> int:
        return self._data_ring((self.shape.processors + processor) * self.shape.targets + target)

    def _request_words(self, processor: int, target: int) -> memoryview:
        return words_of(self.view, self._request_ring(processor, target), RING_HEADER.size)

    def _data_ring(self, index: int) -> int:
        return self._base + index * ring_bytes(self.shape.ring_capacity_bytes)

    def _peer_ring(self, index: int) -> int:
        data_rings = 2 * self.shape.processors * self.shape.targets
        return self._data_ring(data_rings) + index * ring_bytes(PEER_RING_BYTES)


#: Envelope structs, compiled once for both sides.
REQUEST = REQUEST_ENVELOPE.struct
RESPONSE = RESPONSE_ENVELOPE.struct
#: The same struct with later fields combined into one value: the subject of the request, the fields common to all
#: requests of one kind, or all facts for the request log.
RESPONSE_TO_SUBJECT = RESPONSE_ENVELOPE.struct_until("partition_row")
RESPONSE_TO_KIND = RESPONSE_ENVELOPE.struct_until("api_key")
RESPONSE_TO_FACTS = RESPONSE_ENVELOPE.struct_until("received_ns")
RANGE = FILE_RANGE.struct
PEER = PEER_ENVELOPE.struct

if not TYPE_CHECKING and compiled is not None:
    RingProducer = partial(compiled.RingProducer, corrupt=RingCorrupt)
    RingConsumer = partial(compiled.RingConsumer, corrupt=RingCorrupt)
