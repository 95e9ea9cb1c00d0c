"""What a killed handler has left in its request rings, for the handler that takes its place.

Runs in handler processes and the controller, in a replacement's first moments. Produce requests are taken again, in
the order in which they were *received*, whichever ring they are in; their notes say what became of them. All others
that lie in a ring when the replacement begins are passed over: each processor reads the answers that its target has
left and then sends again what has none. So nothing that was answered is done a second time, which its client may have
built upon since. A request that comes while its processor has not noticed the replacement yet is in the ring and is
sent again all the same; the second one is passed over.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterator

from broker.protocol.api_keys import ApiKey
from broker.request_channel import REQUEST
from broker.server.request_ring import RequestRing
from broker.server.response_writer import ReplyTo
from shm.layout import REQUEST_ENVELOPE

#: By then every processor has noticed the replacement and has sent again what it had to.
REPEATS_END_NS = 30_000_000_000

#: (offset of the payload, its bytes, position where the frame ends), as a ring gives them.
RingFrame = tuple[int, int, int]

_EVERYTHING = 1 << 30
_API_KEY = [each.name for each in REQUEST_ENVELOPE.fields].index("api_key")
_PRODUCE = int(ApiKey.PRODUCE)
_RECEIVED_NS = [each.name for each in REQUEST_ENVELOPE.fields].index("received_ns")


class UnreleasedRequests:
    """The requests that a predecessor had not released, and those that have been taken since."""

    def __init__(self, view: memoryview, rings: list[RequestRing], now_ns: int) -> None:
        #: When this object is of no use any more.
        self.over_ns = now_ns + REPEATS_END_NS
        self._view = view
        self._rings: list[RequestRing] = rings
        #: Where each ring ended when nobody could know of this process yet.
        self._ends = [ring.tail() for ring in rings]
        self._taken: set[tuple[int, int]] = set()

    def take(self) -> list[tuple[int, list[RingFrame]]]:
        """Return runs of (processor, its frames) of what is to be taken, in order of arrival. Each is returned once."""
        rings, self._rings = self._rings, []
        runs: list[tuple[int, list[RingFrame]]] = []
        for _, processor, frame in heapq.merge(*(self._arrivals(p, ring) for p, ring in enumerate(rings))):
            if not runs or runs[-1][0] != processor:
                runs.append((processor, []))
            runs[-1][1].append(frame)
        return runs

    def has_taken(self, to: ReplyTo) -> bool:
        """Return whether this process has taken the request before, and remember that it has now."""
        identity = to[1], to[2]
        if identity in self._taken:
            return True
        self._taken.add(identity)
        return False

    def _arrivals(self, processor: int, ring: RequestRing) -> Iterator[tuple[int, int, RingFrame]]:
        """Yield (when it was received at the earliest, processor, frame); a ring's own order stays as it is."""
        latest_ns = 0
        for frame in ring.read(_EVERYTHING):
            if frame[2] <= self._ends[processor] and REQUEST.unpack_from(self._view, frame[0])[_API_KEY] != _PRODUCE:
                continue
            latest_ns = max(latest_ns, REQUEST.unpack_from(self._view, frame[0])[_RECEIVED_NS])
            yield latest_ns, processor, frame
