"""The requests that compiled code handles, from the request ring to the response ring (`native/cached_requests.c`).

Runs in handler processes and the controller, with the compiled module. A run of requests is handled in one call, each
equal to the cached one of its connection: a Produce in all but its records, which are staged, and its response is
written in another call after the commit; others in all bytes, and their response is repeated. The twins are
`Produces.try_fast` and the partition appender, and the users of `ResponseWriter.try_repeat`. They get all else:

- requests under a quota or an injected fault, outside the ring, read again after a death, behind a task of their
  connection in slices, or not like the last one of their connection under the present metadata;
- Produces without acks; batches of an idempotent or transactional producer, compressed, too large, invalid, or first in
  a segment; logs that hold batches back, are offline, are compacted, or set the append time;
- responses after a failed commit, with another error than before, or without room in their ring.

A death at any place leaves the same notes as the twin's. Knows nothing of the contents of a batch.
"""

from __future__ import annotations

import logging
import sys
from typing import TYPE_CHECKING, Any

from rotunda.broker.native import compiled
from rotunda.broker.records.crc import crc32c
from rotunda.broker.records.record_batch import LOG_OVERHEAD_BYTES, unpack_header
from rotunda.shm.layout import REQUEST_ENVELOPE
from rotunda.shm.tables.current_request import REQUEST_AT

if TYPE_CHECKING:
    from collections.abc import Mapping

    from rotunda.broker.apis.context import BrokerContext
    from rotunda.broker.ipc.request import RequestDecoder, RequestRing, RingFrame
    from rotunda.broker.ipc.response_writer import ResponseWriter
    from rotunda.broker.partitions.owned_partition import OwnedPartition
    from rotunda.broker.partitions.produce.partition_appender import PartitionAppender
    from rotunda.broker.partitions.request_cache import RequestCache, RequestCaches
    from rotunda.broker.scheduling.slices import Slices
    from rotunda.shm.tables.current_request import CurrentRequest

logger = logging.getLogger(__name__)

#: The first byte of a request's API key in its envelope: all of it, for keys below 256.
API_KEY_AT = REQUEST_ENVELOPE.offset("api_key")


class RingRequests:
    """The runs of requests of one handler."""

    def __init__(  # noqa: PLR0913 - each belongs to the handler, and compiled code uses it
        self,
        broker: BrokerContext,
        caches: RequestCaches,
        by_api: Mapping[int, RequestCache[Any]],
        appends: PartitionAppender,
        responses: ResponseWriter,
        reader: RequestDecoder,
        slices: Slices,
        current: CurrentRequest,
    ) -> None:
        """``by_api``: the caches of the APIs whose requests may be handled here."""
        self._responses, self._reader = responses, reader
        self._caches, self._metadata, self._listeners = caches, broker.metadata, broker.listeners
        self._versions = -1, -1
        self._wall_ms = broker.clock.wall_ms
        self.is_compiled, self.requests = compiled is not None, 0
        #: By API key, whether compiled code may handle requests.
        self.keys = bytes(key in by_api for key in range(256))
        if compiled is not None:
            native: Any = compiled.CachedRequests()
            self._native = native
            native.view, native.crc32c, native.clock_ns = self._responses.view, crc32c, broker.clock.monotonic_ns
            native.recent = [by_api[key].last.recent if key in by_api else None for key in range(max(by_api) + 1)]
            native.known_name = sys.intern("known")
            native.current, native.request_at, native.lanes = current.words, REQUEST_AT, slices.lanes
            native.dirty, native.rings, native.touched = appends.dirty, self._responses.rings, self._responses.touched
            appends.complete_ring = self.complete

    def handle(self, ring: RequestRing, frames: list[RingFrame], first: int, dequeued_ns: int, end_ns: int) -> int:
        """Handle the requests of a ring's frames from ``first`` on; return the number of the first frame left. HOT.

        Only if `is_compiled`. A run ends early after many bytes or at ``end_ns``, so that a turn stays short.
        """
        versions = self._metadata.version, self._listeners.version
        if versions != self._versions:
            self._versions = versions
            self._caches.clear()
        times = dequeued_ns, self._wall_ms(), end_ns
        number: int = self._native.handle(ring, ring.processor, frames, first, *times)
        if number > first:
            self.requests += number - first
            ring.cursor = frames[number - 1][2]
        return number

    def complete(self, owned: OwnedPartition, error: int, now_ns: int) -> None:
        """Respond to a partition's Produces after a commit; the others become `fast_appends`. HOT."""
        appends, number = owned.ring_appends[:], 0
        owned.ring_appends.clear()
        if appends and not error and not self._responses.are_waiting:
            number = self._native.respond(appends, now_ns, owned.log.log_start_offset)
        for cached, _, ring, frame, _, dequeued_ns, at in appends[number:]:
            try:
                request = self._reader.read_again(ring, frame, dequeued_ns)
                header = unpack_header(request.view, at)
                batch = request.view[at : at + header[1] + LOG_OVERHEAD_BYTES]
                owned.fast_appends.append((request, cached, header, header[0], batch))
            except Exception:
                # It must not block the other responses. Later ones of its connection wait for this one.
                logger.exception("closing the connection of a Produce to %s, its response failed", owned.log.directory)
                self._responses.close_connection(self._reader.read_again(ring, frame, dequeued_ns), now_ns)
