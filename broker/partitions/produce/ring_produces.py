"""The Produces that compiled code handles, from the request ring to the response ring (`native/cached_produces.c`).

Runs in handler processes with the compiled module. A run of requests, each equal to the cached one of its connection
except for its records, is staged in one call, and its responses are written in another call after the commit. The twins
of both are `Produces.try_fast` and the partition appender, which get all else:

- requests without acks, under a quota or an injected fault, outside the ring, read again after a death, or not like the
  last one of their connection under the present metadata;
- batches of an idempotent or transactional producer, compressed, too large, invalid, or first in a segment;
- logs that hold batches back, are offline, are compacted, or set the append time;
- responses after a failed commit, or without room in their ring.

A death at any place leaves the same notes as the twin's. Knows nothing of the contents of a batch.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any

from rotunda.broker.native import compiled
from rotunda.broker.records.crc import crc32c
from rotunda.broker.records.record_batch import LOG_OVERHEAD_BYTES, unpack_header
from rotunda.shm.layout import REQUEST_ENVELOPE
from rotunda.shm.tables.current_request import REQUEST_AT

if TYPE_CHECKING:
    from rotunda.broker.clock import Clock
    from rotunda.broker.ipc.request import RequestDecoder, RequestRing, RingFrame
    from rotunda.broker.ipc.response_writer import ResponseWriter
    from rotunda.broker.partitions.owned_partition import OwnedPartition
    from rotunda.broker.partitions.produce.cached_produce import CachedProduce
    from rotunda.broker.partitions.produce.partition_appender import PartitionAppender
    from rotunda.broker.partitions.request_cache import RequestCache
    from rotunda.shm.tables.current_request import CurrentRequest

logger = logging.getLogger(__name__)

#: The first byte of a request's API key in its envelope: 0 in a Produce, and for any other key below 256 not.
API_KEY_AT = REQUEST_ENVELOPE.offset("api_key")


class RingProduces:
    """The runs of Produces of one handler."""

    def __init__(
        self,
        cache: RequestCache[CachedProduce],
        appends: PartitionAppender,
        responses: ResponseWriter,
        reader: RequestDecoder,
        current: CurrentRequest,
        clock: Clock,
    ) -> None:
        self._cache, self._responses, self._reader, self._wall_ms = cache, responses, reader, clock.wall_ms
        self.is_compiled, self.requests = compiled is not None, 0
        if compiled is not None:
            native: Any = compiled.CachedProduces()
            self._native = native
            native.view, native.crc32c = responses.view, crc32c
            native.current, native.request_at = current.words, REQUEST_AT
            native.dirty, native.rings, native.touched = appends.dirty, responses.rings, responses.touched
            appends.complete_ring = self.complete

    def stage(self, ring: RequestRing, frames: list[RingFrame], first: int, dequeued_ns: int) -> int:
        """Stage the Produces of a ring's frames from ``first`` on; return the number of the first frame left. HOT.

        Only if `is_compiled`. A run ends early after many bytes, so that a turn stays short.
        """
        if not self._cache.is_current:
            return first
        recent = self._cache.last.recent
        number: int = self._native.stage(recent, ring, ring.processor, frames, first, dequeued_ns, self._wall_ms())
        if number > first:
            self.requests += number - first
            ring.cursor = frames[number - 1][2]
        return number

    def complete(self, owned: OwnedPartition, error: int, now_ns: int) -> None:
        """Respond to a partition's requests after a commit; the others become `fast_appends`. HOT."""
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
