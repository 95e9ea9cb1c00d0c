"""Group commit: what one turn of the loop staged for each partition, committed and answered together.

Runs in handler processes, for the partitions that the handler owns. The order is the broker's promise: records are
written, the new end is published in shared memory (the one word that commits them), then they are acknowledged.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import TYPE_CHECKING, Protocol, TypeAlias

from rotunda.broker.log.partition_log import LogWriteFailed
from rotunda.broker.protocol.error_codes import ErrorCode

if TYPE_CHECKING:
    from rotunda.broker.ipc.request import Request
    from rotunda.broker.log.partition_log import PartitionLog
    from rotunda.broker.protocol.messages.produce import ProduceResponseTemplate
    from rotunda.broker.protocol.records import RawHeader
    from rotunda.shm.tables.partitions import RowWriter

logger = logging.getLogger(__name__)

#: What is called when a commit could not be written.
WriteFailed = Callable[["OwnedPartition", LogWriteFailed], None]

#: What is called when a staged batch stands or has failed: (error code, base offset, append time in ms).
Answer = Callable[[int, int, int], None]


def _nobody_asks(owned: OwnedPartition, failure: LogWriteFailed) -> None:
    """Stand in for whoever sees to failed writes."""


class PlainProduce(Protocol):
    """What the answer to a request with one partition alone needs of it."""

    @property
    def acks(self) -> int:
        """Which answer its client wants; 0 is none."""

    @property
    def about(self) -> bytes:
        """Its facts for the request log."""

    @property
    def tail(self) -> bytes:
        """The end of the envelope of its answer."""

    @property
    def template(self) -> ProduceResponseTemplate:
        """Its answer, but for numbers."""


#: (request, what it is like, header, base offset, the batch) of requests with one partition alone.
FastAnswers: TypeAlias = "list[tuple[Request, PlainProduce, RawHeader, int, memoryview]]"


class OwnedPartition:
    """A partition of this handler: its log, the writer of its row, and what waits for the next commit."""

    __slots__ = ("answers", "fast_answers", "log", "published_end", "row", "writer")

    def __init__(self, log: PartitionLog, row: int, writer: RowWriter) -> None:
        self.log = log
        self.row = row
        self.writer = writer
        #: (answer, base offset, append time, the batch in its request) of batches that came by the general path.
        self.answers: list[tuple[Answer, int, int, memoryview]] = []
        self.fast_answers: FastAnswers = []
        #: Below this offset everything is committed.
        self.published_end = log.log_end_offset

    def publish(self) -> None:
        """Make the log's ends visible to every process: from here on the records exist."""
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

    def commit(self, write_failed: WriteFailed = _nobody_asks) -> int:
        """Write and publish what is staged; ``write_failed`` is called when that fails.

        Return the Kafka error code that answers whatever is not below `published_end`.
        """
        try:
            if self.log.commit():
                self.publish()
        except LogWriteFailed as failure:
            write_failed(self, failure)
            return int(ErrorCode.KAFKA_STORAGE_ERROR)
        except Exception:
            # A fault of ours, somewhere between memory and file: what was staged is in doubt, what is published is not.
            logger.exception("the commit to %s failed", self.log.directory)
            self.log.refuse_everything()
            return int(ErrorCode.KAFKA_STORAGE_ERROR)
        return 0
