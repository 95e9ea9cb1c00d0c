"""One request in a target: its envelope, its session, the place of its bytes, and the ring it arrived through.

Runs in handler processes and the controller. The request loop reads one object from each frame of a request ring, and
passes it to all code that serves the request. Nothing is copied: ``view[start:end]`` belongs to the request until its
frame is released, which is at the end of the turn unless its ring holds it (`RingHold`). Until then it may be read, and
a Produce batch may be patched in place. All other attributes stay valid as long as the object. Knows neither APIs nor
responses.
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

#: REQUEST_ENVELOPE.state of a Produce: without notes, or with the owners' notes in its base-offset fields.
FRESH, NOTED = 0, 1

STATE_OFFSET = REQUEST_ENVELOPE.offset("state")

_ENVELOPE_BYTES, _unpack_envelope = REQUEST.size, REQUEST.unpack_from

#: (offset of the payload, its bytes, position where the frame ends), as a ring returns them.
RingFrame = tuple[int, int, int]


class RingHold:
    """Holds a request's memory until its response is sent and no peer may read it any more."""

    __slots__ = ("answered", "peers", "readers", "start")

    def __init__(self, start: int) -> None:
        self.start = start
        self.answered = False
        self.peers: list[tuple[RingProducer, int]] = []
        #: Number of its parts that this process has still to read.
        self.readers = 0

    def over(self) -> bool:
        """Return whether it has a response and no readers, neither here nor peers with frames that point to it."""
        return self.answered and not self.readers and all(ring.consumed() >= position for ring, position in self.peers)


class RequestRing:
    """The request ring of one processor as its target reads it.

    An unfinished request that waits for another owner holds its own memory, and with it everything after it in the
    ring; reading continues. A replacement of this process reads all unreleased frames again.
    """

    def __init__(self, ring: RingConsumer, processor: int) -> None:
        self.processor = processor
        #: Returns up to so many new frames as (offset of the payload, its bytes, position where the frame ends).
        self.read = ring.read
        self._release_to = ring.release_to
        self._holds: list[RingHold] = []
        #: The position up to which requests are handled. Frames that are read beyond it are not released.
        self.cursor = ring.cursor

    def hold(self, start: int) -> RingHold:
        """Hold everything from position ``start`` on."""
        hold = RingHold(start)
        insort(self._holds, hold, key=lambda h: h.start)
        return hold

    def release(self) -> None:
        """Release the handled requests, up to the first one that is still held. HOT: once a turn."""
        holds = self._holds
        while holds and holds[0].over():
            holds.pop(0)
        self._release_to(holds[0].start if holds else self.cursor)

    @property
    def holding(self) -> bool:
        """True while some request holds its memory; no bell announces its release, so it must be polled."""
        return bool(self._holds)


class Request:
    """A request. Its reader sets every attribute before other code sees the object, except the last six.

    Those are for delayed responses, and are set by the code that decodes the request.

    ``view[start:end]`` starts at the api key and holds ``size_bytes`` bytes, in the memory that ``area`` names.
    ``quotas`` are the client's, None while no quota is in force. ``generation`` is that of the target it was sent to.
    ``ring_start`` is the position of the frame in ``ring``, and ``envelope_at`` the offset of its envelope in the
    rings' segment. ``is_noted`` means that an owner has written notes into the base-offset fields of a Produce.
    """

    __slots__ = (
        "about",
        "api_key",
        "api_version",
        "area",
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
        "to_cache",
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
    to_cache: object
    """The cache entry that its response may complete, or None."""

    @property
    def identity(self) -> Identity:
        """The connection and the request's sequence in it: unique among all requests of a broker's life."""
        return self.connection_id, self.sequence


_new_request = Request.__new__


def peer_request(header: RequestHeader, session: Session, received_ns: int) -> Request:
    """Return a request forwarded by another target, as one through the first listener; it has no memory."""
    request = Request()
    request.api_key, request.api_version = header.api_key, header.api_version
    request.correlation_id, request.client_id = header.correlation_id, header.client_id
    request.connection_id = request.sequence = request.listener = 0
    request.received_ns, request.session, request.in_slices = received_ns, session, False
    return request


class MemoryAreas:
    """The memory areas that hold requests, by area number: the rings, the arena, a processor's spill area."""

    def __init__(self, context: ProcessContext) -> None:
        self._views: dict[int, memoryview] = {INLINE: context.rings.view, ARENA: context.arena.view}
        self._spill_fds = context.spill_fds

    def view(self, area: int) -> memoryview:
        """Return the whole area; addresses of requests are offsets in it."""
        view = self._views.get(area)
        if view is None:
            # A spill area is mapped at the first oversize request of its processor.
            view = memoryview(mmap.mmap(self._spill_fds[area - SPILL], 0))
            self._views[area] = view
        return view


class RequestDecoder:
    """Decodes the requests of one target from the frames of its rings."""

    __slots__ = ("_areas", "_session_of", "_view")

    def __init__(self, rings: memoryview, areas: MemoryAreas) -> None:
        self._view, self._areas, self._session_of = rings, areas, Sessions().of

    def read(self, ring: RequestRing, frame: RingFrame, dequeued_ns: int) -> Request:
        """Return the request in the next frame of a ring, and advance the ring's cursor past it. HOT."""
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

    def read_again(self, ring: RequestRing, frame: RingFrame, dequeued_ns: int) -> Request:
        """Return the request in a frame that the ring's cursor has passed."""
        cursor = ring.cursor
        request = self.read(ring, frame, dequeued_ns)
        ring.cursor = cursor
        return request
