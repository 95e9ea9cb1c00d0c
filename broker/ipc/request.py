"""One request as a target has it: its envelope, whose it is, where its bytes lie, and the ring that they came through.

Runs in handler processes and the controller. The request loop reads one object from each frame of a request ring, and
everything that serves the request is given that object. Nothing is copied: ``view[start:end]`` belongs to the request
until its frame is released, which is at the end of the turn unless its ring holds it (`RingHold`); until then it
may be read, and a Produce batch may be patched in place. All other attributes stay valid as long as the object. Knows
neither APIs nor responses.
"""

from __future__ import annotations

import mmap
from bisect import insort
from typing import TYPE_CHECKING

from rotunda.broker.ipc.request_channel import ARENA, INLINE, REQUEST, SPILL
from rotunda.broker.security.session import ANONYMOUS, Session, Sessions
from rotunda.shm.layout import REQUEST_ENVELOPE
from rotunda.shm.rings.ring import RingConsumer, RingProducer

if TYPE_CHECKING:
    from rotunda.broker.ipc.process_context import ProcessContext
    from rotunda.broker.protocol.headers import RequestHeader
    from rotunda.broker.quotas.client_sensors import ClientSensors
    from rotunda.broker.server_log.slow_turns import Doing
    from rotunda.shm.tables.current_request import Identity

#: REQUEST_ENVELOPE.state of a Produce: nothing noted; its base-offset fields are the owners' notes.
FRESH, NOTED = 0, 1

STATE_OFFSET = REQUEST_ENVELOPE.offset("state")

_ENVELOPE_BYTES, _unpack_envelope = REQUEST.size, REQUEST.unpack_from


#: By which an answer may be kept: (whose, listener, api key and version, the rest of the request, what it holds for).
CacheKey = tuple[Session, int, bytes, bytes, tuple[int, int]]

#: (offset of the payload, its bytes, position where the frame ends), as a ring gives them.
RingFrame = tuple[int, int, int]


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
    """The request ring of one processor as its target reads it.

    Release is held back where a request is not finished: one that waits for another owner holds its own memory, and
    with it everything behind it in the ring; reading goes on. What is not released is what a replacement of this
    process will read again.
    """

    def __init__(self, ring: RingConsumer, processor: int) -> None:
        self.processor = processor
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


class Request:
    """A request. Its reader sets every attribute before anything else sees the object, but for the last six.

    Those are for answers that are not given at once, and are set by whatever decodes the request.

    ``view[start:end]`` starts at the api key and holds ``size_bytes`` bytes, in the memory that ``area`` names.
    ``quotas`` are the client's, None while no quota is in force. ``generation`` is that of the target it was sent to.
    ``ring_start`` is the position of the frame in
    ``ring``, and ``envelope_at`` the offset of its envelope in the rings' segment. ``is_noted`` says that an owner has
    written notes into the base-offset fields of a Produce.
    """

    __slots__ = (
        "about",
        "api_key",
        "api_version",
        "area",
        "cache_key",
        "client_id",
        "connection_id",
        "correlation_id",
        "dequeued_ns",
        "doing",
        "end",
        "envelope_at",
        "generation",
        "in_slices",
        "is_long",
        "is_noted",
        "listener",
        "processor",
        "quotas",
        "received_ns",
        "ring",
        "ring_start",
        "sequence",
        "session",
        "size_bytes",
        "start",
        "view",
    )

    processor: int
    connection_id: int
    sequence: int
    received_ns: int
    dequeued_ns: int
    api_key: int
    api_version: int
    correlation_id: int
    size_bytes: int
    quotas: ClientSensors | None
    session: Session
    listener: int
    area: int
    view: memoryview
    start: int
    end: int
    envelope_at: int
    generation: int
    is_noted: bool
    ring: RequestRing
    ring_start: int
    client_id: str
    in_slices: bool
    """Whether this is done in slices, or something that the connection has asked for before is."""
    is_long: bool
    """Whether its answer is encoded in slices."""
    doing: Doing
    """What the process does for it, for the log of slow turns."""
    about: bytes
    """What it is about (`request_facts.subject`)."""
    cache_key: CacheKey | None
    """By which its answer may be kept."""

    @property
    def identity(self) -> Identity:
        """The connection and the request's place in it: unique among all requests of a broker's life."""
        return self.connection_id, self.sequence


_new_request = Request.__new__


def peer_request(header: RequestHeader, session: Session, received_ns: int) -> Request:
    """Return a request that another target has forwarded, as one through the first listener; it has no memory."""
    request = Request()
    request.api_key, request.api_version = header.api_key, header.api_version
    request.correlation_id, request.client_id = header.correlation_id, header.client_id
    request.connection_id = request.sequence = request.listener = 0
    request.received_ns, request.session, request.in_slices = received_ns, session, False
    return request


class MemoryAreas:
    """The memory in which requests lie, by area number: the rings, the arena, a processor's spill area."""

    def __init__(self, context: ProcessContext) -> None:
        self._views: dict[int, memoryview] = {INLINE: context.rings.view, ARENA: context.arena.view}
        self._spill_fds = context.spill_fds

    def view(self, area: int) -> memoryview:
        """Return the whole area; addresses of requests are offsets in it."""
        view = self._views.get(area)
        if view is None:
            # Spill areas are mapped when the first oversize request of their processor comes.
            view = memoryview(mmap.mmap(self._spill_fds[area - SPILL], 0))
            self._views[area] = view
        return view


class RequestReader:
    """Reads the requests of one target from the frames of its rings."""

    __slots__ = ("_areas", "_session_of", "_view")

    def __init__(self, rings: memoryview, areas: MemoryAreas) -> None:
        self._view, self._areas, self._session_of = rings, areas, Sessions().of

    def read(self, ring: RequestRing, frame: RingFrame, dequeued_ns: int) -> Request:
        """Return the request in the next frame of a ring, and move the ring's cursor behind it. HOT."""
        at, _, frame_end = frame
        view, request = self._view, _new_request(Request)
        (
            request.connection_id, request.sequence, request.received_ns, request.api_key, request.api_version,
            request.correlation_id, size, session_bytes, start, request.listener, area, request.generation, state,
        ) = _unpack_envelope(view, at)  # fmt: skip
        if area == INLINE:
            request.view = view
            start = at + _ENVELOPE_BYTES
            session_at = start + size
        else:
            request.view = self._areas.view(area)
            session_at = at + _ENVELOPE_BYTES
        if session_bytes:
            request.session = self._session_of(bytes(view[session_at : session_at + session_bytes]))
        else:
            request.session = ANONYMOUS
        request.area, request.start, request.end, request.size_bytes = area, start, start + size, size
        request.envelope_at, request.is_noted, request.quotas = at, state == NOTED, None
        request.processor, request.ring, request.ring_start = ring.processor, ring, ring.cursor
        request.dequeued_ns, ring.cursor = dequeued_ns, frame_end
        return request
