"""One Produce request: the outcomes of its parts so far, and the response that is sent when all have one.

Runs in the handler that received the request. Parts of its own partitions complete at the commit of the same loop pass;
parts of others complete when their owners respond. Until then the request's memory is held: the owners read the records
there, and a replacement of this process finds the request again.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from struct import Struct
from typing import Final

from rotunda.broker.ipc.request import Request, RingHold
from rotunda.broker.ipc.response_writer import NO_FACTS, ResponseFacts, ResponseWriter
from rotunda.broker.partitions.produce.record_errors import NO_ERRORS, PartErrors, record_allowance
from rotunda.broker.partitions.transaction_messages import NOBODY, Producer
from rotunda.broker.protocol.error_codes import ErrorCode
from rotunda.broker.protocol.messages.produce import (
    Part,
    PartResponse,
    encode_produce_response,
    produce_response_in_steps,
)
from rotunda.broker.records.record_batch import TRANSACTIONAL_BIT
from rotunda.broker.records.record_reader import ReadAllowance
from rotunda.broker.scheduling.deferred import Deferred
from rotunda.broker.scheduling.slices import SlicedWork, Slices
from rotunda.broker.text_table import counted

logger = logging.getLogger(__name__)

#: The response to a request with more parts is encoded in slices.
ANSWERED_AT_ONCE: Final = 1000

INVALID_RECORD = int(ErrorCode.INVALID_RECORD)
INVALID_TIMESTAMP = int(ErrorCode.INVALID_TIMESTAMP)
MESSAGE_TOO_LARGE = int(ErrorCode.MESSAGE_TOO_LARGE)

STORAGE_ERROR = int(ErrorCode.KAFKA_STORAGE_ERROR)

#: For these errors the response has details of the records, or of the batch or the disk.
ERRORS_WITH_RECORD_DETAILS = frozenset({INVALID_RECORD, INVALID_TIMESTAMP, MESSAGE_TOO_LARGE, STORAGE_ERROR})

#: The first version of Produce with such details in the response (KIP-467).
_FIRST_VERSION_WITH_BLAME = 8

#: `ProducePart.guard`: none, or a transaction not verified yet. Guards are larger.
NO_TRANSACTION, UNVERIFIED = 0, 1

_ATTRIBUTES_AND_PRODUCER: Final = Struct(
    ">21x"  # up to the attributes
    "h"  # attributes
    "20x"  # offsets and times
    "q"  # producer id
    "h"  # producer epoch
)


class Produce:
    """A Produce request and its outcomes so far."""

    __slots__ = (
        "_acks",
        "_allowance",
        "_is_dropped",
        "_local_ns",
        "_missing",
        "_now_ns",
        "_record_errors",
        "_responses",
        "_results",
        "_slices",
        "_taken",
        "_waits",
        "complete",
        "facts",
        "forwarded",
        "hold",
        "request",
        "token",
    )

    def __init__(
        self,
        request: Request,
        responses: ResponseWriter,
        slices: Slices,
        now_ns: Callable[[], int],
        record_errors: Callable[[Request, Part, int, ReadAllowance], PartErrors],
    ) -> None:
        self.token = -1
        #: The facts for the request log, without the error.
        self.facts = NO_FACTS
        self.complete = False
        self.hold: RingHold = request.ring.hold(request.ring_start)
        self.request = request
        self._record_errors = record_errors
        self._allowance: ReadAllowance | None = None
        self._acks = 0
        self._responses = responses
        self._slices = slices
        self._now_ns = now_ns
        self._results: list[PartResponse | None] = []
        #: By index, the parts forwarded to their owners.
        self.forwarded: dict[int, ProducePart] = {}
        self._missing = 0
        self._taken = False
        self._waits: Deferred | None = None
        self._is_dropped = False
        self._local_ns = 0

    def begin(self, acks: int, count: int, facts: ResponseFacts) -> None:
        """Expect this many outcomes, after the request is parsed."""
        self._acks = acks
        self._results = [None] * count
        self._missing = count
        self.facts = facts

    def part_done(
        self, index: int, part: Part, error: int, base_offset: int, time_ms: int, log_start_offset: int
    ) -> None:
        """Record the outcome of one part; a second outcome of the same part is ignored. Raises nothing."""
        if self.has_outcome(index):
            return
        start = -1 if error else log_start_offset
        message, records = self._blame_for(part, error) if error in ERRORS_WITH_RECORD_DETAILS else NO_ERRORS
        self._results[index] = PartResponse(
            part.topic_name, part.topic_id, part.partition, error, base_offset, time_ms, start, message, records
        )
        self._missing -= 1
        waits, self._waits = self._waits, None
        if waits is not None:
            waits.complete(True)
        if self._taken and self._missing == 0:
            self._respond()

    def next_outcome(self, taken: int, most: int) -> Deferred | None:
        """Return a Deferred for the next outcome if more than ``most`` of the ``taken`` parts have none."""
        if taken - (len(self._results) - self._missing) <= most:
            return None
        self._waits = Deferred()
        return self._waits

    def has_outcome(self, index: int) -> bool:
        """Return whether a part has an outcome, or needs none any more."""
        return self.complete or self._results[index] is not None

    def all_parts_begun(self) -> None:
        """Allow the response: every part has been rejected, staged or forwarded."""
        self._taken = True
        self._local_ns = self._now_ns()
        if self._missing == 0:
            self._respond()

    def drop(self) -> Request:
        """Close the connection when all parts have an outcome, without a response: an owner has died in one."""
        self._is_dropped = True
        return self.request

    def abandon(self) -> None:
        """Send no response: an error has closed the request's connection. Its memory is no longer held."""
        self.complete = True
        self.hold.answered = True

    def _blame_for(self, part: Part, error: int) -> PartErrors:
        if self._acks == 0 or self.request.api_version < _FIRST_VERSION_WITH_BLAME:
            return NO_ERRORS
        if self._allowance is None:
            self._allowance = record_allowance()
        try:
            return self._record_errors(self.request, part, error, self._allowance)
        except Exception:
            logger.exception("cannot find the invalid records of %s-%d", part.topic_name, part.partition)
            return NO_ERRORS

    def _respond(self) -> None:
        self.complete = True
        request = self.request
        results = [result for result in self._results if result is not None]
        try:
            if self._acks and len(results) > ANSWERED_AT_ONCE:
                # Its memory is held until the response is sent: a replacement of this process responds from its notes.
                work = produce_response_in_steps(request.api_version, request.correlation_id, 0, results)
                doing, identity = ("PRODUCE", ""), request.identity
                self._slices.add_now(SlicedWork(work, request.identity, self._send, self._close, doing, identity))
            else:
                version, correlation = request.api_version, request.correlation_id
                self._send(encode_produce_response(version, correlation, 0, results) if self._acks else b"")
        except Exception:
            parts = counted(len(results), "partition")
            logger.exception("closing the connection of a Produce, its response with %s failed", parts)
            self._close()

    def _close(self) -> None:
        self.hold.answered = True
        self._responses.close_connection(self.request, self._now_ns())

    def _send(self, payload: bytes) -> None:
        self.hold.answered = True
        now_ns = self._now_ns()
        request = self.request
        error = next((result.error_code for result in self._results if result is not None and result.error_code), 0)
        facts = self.facts._replace(error_code=error)
        if self._is_dropped or (error and not self._acks):
            self._responses.close_connection(request, now_ns, facts)
        elif self._acks != 0:
            self._responses.send(request, self._local_ns, now_ns, payload, facts)
        else:
            self._responses.no_response(request, self._local_ns, now_ns, facts)


def is_transactional(view: memoryview, offset: int) -> bool:
    """Return whether the batch at ``offset``, at least a header long, is transactional."""
    return bool(_ATTRIBUTES_AND_PRODUCER.unpack_from(view, offset)[0] & TRANSACTIONAL_BIT)


def producer_of(view: memoryview, offset: int) -> Producer:
    """Return the producer of the batch at ``offset``, at least a header long."""
    _, producer_id, epoch = _ATTRIBUTES_AND_PRODUCER.unpack_from(view, offset)
    return Producer(producer_id, epoch)


class ProducePart:
    """One partition's batch of a Produce, from its acceptance until its outcome."""

    __slots__ = ("guard", "index", "is_being_verified", "owner", "part", "produce", "producer", "row", "transaction")

    def __init__(self, produce: Produce, index: int, part: Part, row: int, owner: int) -> None:
        self.produce = produce
        self.index = index
        self.part = part
        self.row = row
        self.owner = owner
        #: NO_TRANSACTION, or the verification state of its transaction (`verification`).
        self.guard = NO_TRANSACTION
        #: Transactional id and topic name, if it is transactional.
        self.transaction = "", ""
        self.producer = NOBODY
        #: Whether a check with its coordinator is pending; repeated requests of the owner are then ignored.
        self.is_being_verified = False

    @property
    def is_transactional(self) -> bool:
        """Whether its batch is marked as transactional."""
        return self.guard != NO_TRANSACTION

    @property
    def queue_key(self) -> tuple[int, int]:
        """The queue of a transactional part: row and producer id. Parts of one queue are appended one at a time."""
        return self.row, self.producer.producer_id

    def begin_transaction(self, transactional_id: str, topic: str) -> None:
        """Mark it as part of a transaction that is not verified yet."""
        self.guard = UNVERIFIED
        self.transaction = transactional_id, topic
        self.producer = producer_of(self.produce.request.view, self.part.records_offset)
