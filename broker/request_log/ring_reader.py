"""The reader of the sources' rings: returns new frames as arrays.

Runs in the recorder. Rows stay arrays from here to the file; a frame costs the same whether it has one row or a
thousand.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from rotunda.shm.recorder_layout import CONNECTION_EVENT, RECORDER_FRAME, RECORDER_TEXT, REQUEST_ROW

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from rotunda.broker.request_log.names import Clients
    from rotunda.shm.rings.recorder_rings import RecorderRings

    Rows = NDArray[np.void]

#: Most frames read from one ring at once, to bound the time.
MOST_FRAMES = 64

#: Placeholder for a client in the text of an event.
NOBODY = -1


class TakenFrames(NamedTuple):
    """The frames of one source."""

    source: int
    rows: Rows | None
    connections: Rows | None
    events: list[dict[str, Any]]


class Intake:
    """The reading ends of all rings."""

    def __init__(self, rings: RecorderRings, clients: Clients) -> None:
        self._view = rings.view
        self._rings = {source: rings.consumer(source) for source in rings.ring_sources()}
        self._clients = clients

    def first_unread(self, source: int) -> tuple[int, int] | None:
        """Return (first row, first event) of the first unreleased frame; None if there is none.

        Call before the first `take`.
        """
        ring = self._rings.get(source)
        if ring is None or not ring.pending():
            return None
        cursor, index = ring.cursor, ring._index
        frames = ring.read(1)
        ring.cursor, ring._index = cursor, index
        first_row, first_event, *_ = RECORDER_FRAME.struct.unpack_from(self._view, frames[0][0])
        return first_row, first_event

    def take(self) -> list[TakenFrames]:
        """Read the available frames, up to a limit; `release` must follow."""
        return [self._take(source) for source, ring in self._rings.items() if ring.pending()]

    def release(self) -> None:
        """Release the read frames' memory to the sources."""
        for ring in self._rings.values():
            ring.release()

    def pending(self) -> bool:
        """Return whether unread frames are available."""
        return any(ring.pending() for ring in self._rings.values())

    def _take(self, source: int) -> TakenFrames:
        rows: list[Rows] = []
        connections: list[Rows] = []
        events: list[dict[str, Any]] = []
        for start, _, _ in self._rings[source].read(MOST_FRAMES):
            fields = RECORDER_FRAME.struct.unpack_from(self._view, start)
            _, _, row_count, _, text_count, connection_count = fields
            at = start + RECORDER_FRAME.size
            if row_count:
                rows.append(np.frombuffer(self._view, REQUEST_ROW.dtype, row_count, at))
            at += row_count * REQUEST_ROW.size
            if connection_count:
                connections.append(np.frombuffer(self._view, CONNECTION_EVENT.dtype, connection_count, at))
            at += connection_count * CONNECTION_EVENT.size
            self._read_texts(at, text_count, events)
        # Joining copies: the returned arrays no longer lie in the ring.
        return TakenFrames(source, joined(rows) if rows else None, joined(connections) if connections else None, events)

    def _read_texts(self, at: int, count: int, events: list[dict[str, Any]]) -> None:
        for _ in range(count):
            number, size = RECORDER_TEXT.struct.unpack_from(self._view, at)
            at += RECORDER_TEXT.size
            text = bytes(self._view[at : at + size])
            at += -(-size // 8) * 8
            if number == NOBODY:
                events.append(json.loads(text))
            elif number < NOBODY:
                self._clients.learn_denial(number, text)
            else:
                self._clients.learn(number, text)


def joined(parts: list[Rows]) -> Rows:
    """Return a copy of arrays of one type, concatenated; at least one."""
    # As bytes: to join records numpy first compares their fields, one by one.
    found: Rows = np.frombuffer(bytearray().join([part.data for part in parts]), parts[0].dtype)
    return found
