"""One request as a target has it: its envelope, whose it is, and where its bytes lie in shared memory.

Runs in handler processes and the controller. The request loop makes one object for each frame of a request ring, and
everything that serves the request is given that object. Nothing is copied: ``view[start:end]`` belongs to the request
until its frame is released, which is at the end of the turn unless the ring holds it (`request_ring`). All other
attributes stay valid as long as the object. Knows neither APIs nor responses.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from shm.layout import REQUEST_ENVELOPE

if TYPE_CHECKING:
    from broker.ipc.request_ring import RequestRing
    from broker.quotas.client_sensors import ClientSensors
    from broker.security.session import Session
    from shm.tables.current_request import Identity

#: REQUEST_ENVELOPE.state of a Produce: nothing noted; its base-offset fields are the owners' notes.
FRESH, NOTED = 0, 1

STATE_OFFSET = REQUEST_ENVELOPE.offset("state")


class Request:
    """A request. The request loop sets every attribute before anything else sees the object.

    ``view[start:end]`` starts at the api key and holds ``size_bytes`` bytes, in the memory that ``area`` names.
    ``quotas`` are the client's, None while no quota is in force. ``ring_start`` is the position of the frame in
    ``ring``, and ``envelope_at`` the offset of its envelope in the rings' segment. ``is_noted`` says that an owner has
    written notes into the base-offset fields of a Produce.
    """

    __slots__ = (
        "api_key",
        "api_version",
        "area",
        "connection_id",
        "correlation_id",
        "dequeued_ns",
        "end",
        "envelope_at",
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
    is_noted: bool
    ring: RequestRing
    ring_start: int

    @property
    def identity(self) -> Identity:
        """The connection and the request's place in it: unique among all requests of a broker's life."""
        return self.connection_id, self.sequence
