"""The unreleased requests: those that a killed target has left in its rings, for the one that takes its place.

Runs in handler processes and the controller, in a replacement's first turn. Requests are returned in the order in which
they were *received*, whichever ring they are in, because Produces are taken again from there: their notes say what
became of them. All others bear the generation of the target that they were sent to, and a replacement passes over
those that were sent to another: each processor reads the answers that its target has left, and then sends again what
has none. So nothing that was answered is done a second time, which its client may have built upon since.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterator

from broker.ipc.request_channel import REQUEST
from broker.ipc.request_ring import RequestRing
from shm.layout import REQUEST_ENVELOPE

#: (offset of the payload, its bytes, position where the frame ends), as a ring gives them.
RingFrame = tuple[int, int, int]

_EVERYTHING = 1 << 30
_RECEIVED_NS = [each.name for each in REQUEST_ENVELOPE.fields].index("received_ns")


def unreleased(view: memoryview, rings: list[RequestRing]) -> list[tuple[int, list[RingFrame]]]:
    """Return runs of (processor, its frames) of all that is in the rings, in order of arrival."""
    runs: list[tuple[int, list[RingFrame]]] = []
    for _, processor, frame in heapq.merge(*(_arrivals(view, p, ring) for p, ring in enumerate(rings))):
        if not runs or runs[-1][0] != processor:
            runs.append((processor, []))
        runs[-1][1].append(frame)
    return runs


def _arrivals(view: memoryview, processor: int, ring: RequestRing) -> Iterator[tuple[int, int, RingFrame]]:
    """Yield (when it was received at the earliest, processor, frame); a ring's own order stays as it is."""
    latest_ns = 0
    for frame in ring.read(_EVERYTHING):
        latest_ns = max(latest_ns, REQUEST.unpack_from(view, frame[0])[_RECEIVED_NS])
        yield latest_ns, processor, frame
