"""Group commit: the batches staged for each partition in one loop pass are committed and acknowledged together.

Runs in handler processes, for the partitions that the handler owns. The order is guaranteed: write the records, publish
the new end in shared memory (the one word that commits them), then acknowledge.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias

if TYPE_CHECKING:
    from rotunda.broker.ipc.request import Request, RequestRing, RingFrame
    from rotunda.broker.log.partition_log import PartitionLog
    from rotunda.broker.partitions.produce_response import ProduceResponseTemplate
    from rotunda.broker.records.record_batch import RawHeader
    from rotunda.shm.tables.partitions import RowWriter

#: Called when a staged batch is committed or has failed: (error code, base offset, append time in ms).
AppendCallback = Callable[[int, int, int], None]


class PlainProduce(Protocol):
    """The properties of a single-partition request that are needed to send its response."""

    @property
    def acks(self) -> int:
        """The acks setting of the request; 0: no response."""

    @property
    def about(self) -> bytes:
        """The request's facts for the request log."""

    @property
    def tail(self) -> bytes:
        """The end of the envelope of its response."""

    @property
    def template(self) -> ProduceResponseTemplate:
        """The encoded response, without its numbers."""


#: (request, cached request, header, base offset, batch) of each single-partition request.
FastAppends: TypeAlias = "list[tuple[Request, PlainProduce, RawHeader, int, memoryview]]"

#: (cached request, the same in C, ring, frame, processor, time of dequeuing, offset of the batch in the rings) of each.
RingAppends: TypeAlias = "list[tuple[Any, Any, RequestRing, RingFrame, int, int, int]]"


class OwnedPartition:
    """A partition of this handler: its log, the writer of its row, and the batches staged for the next commit."""

    __slots__ = ("callbacks", "fast_appends", "log", "published_end", "ring_appends", "row", "writer")

    def __init__(self, log: PartitionLog, row: int, writer: RowWriter) -> None:
        self.log = log
        self.row = row
        self.writer = writer
        #: (callback, base offset, append time, the batch in its request) of batches from the general path.
        self.callbacks: list[tuple[AppendCallback, int, int, memoryview]] = []
        self.fast_appends: FastAppends = []
        #: Those of compiled code. Always the same object.
        self.ring_appends: RingAppends = []
        #: All records below this offset are committed.
        self.published_end = log.log_end_offset

    def publish(self) -> None:
        """Publish the log's ends in shared memory. This commits the records."""
        log = self.log
        self.writer.publish(
            log.log_end_offset,
            log.segment_base,
            log.position,
            log.log_start_offset,
            log.last_stable_offset,
            log.size_bytes,
        )
        self.published_end = log.log_end_offset
