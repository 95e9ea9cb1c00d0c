"""One request as it lies in shared memory: its envelope, and where its bytes are.

Runs in handler processes and the controller. Nothing is copied; the memory is the request's until its frame is
released.
"""

from __future__ import annotations

from typing import NamedTuple

from broker.ipc.request_ring import RequestRing
from broker.ipc.response_writer import ReplyTo
from broker.security.session import Session
from shm.layout import REQUEST_ENVELOPE

#: What REQUEST_ENVELOPE.state says of a Produce: nothing noted; its base-offset fields are the owners' notes.
FRESH, NOTED = 0, 1

STATE_OFFSET = REQUEST_ENVELOPE.offset("state")


class Frame(NamedTuple):
    """A request off the hot path. ``view[start:end]`` is the request from its api key on."""

    to: ReplyTo
    received_ns: int
    api_key: int
    api_version: int
    correlation_id: int
    listener: int
    area: int
    view: memoryview
    start: int
    end: int
    envelope_at: int
    noted: bool
    ring: RequestRing
    ring_start: int

    @property
    def session(self) -> Session:
        """Whose request it is."""
        return self.to[10]
