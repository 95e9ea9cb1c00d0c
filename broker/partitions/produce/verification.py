"""Verification of transactional records: none is appended before its transaction is known to be open.

Runs in handler processes, as part of Produce. Records of a transaction that is open in the partition's log are appended
like any other. The first records of a transaction must be verified by its coordinator: the owner of the partition
rejects them with a *guard*, and the handler with the request verifies them with the coordinator and retries with the
guard. A marker removes the guard, so that a verification from before the end of the transaction is void (KIP-890).

Parts of one producer for one partition are tried one at a time, in order.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Final

from rotunda.broker.partitions.produce.produce import ProducePart
from rotunda.broker.partitions.transaction_messages import Membership, Producer
from rotunda.broker.protocol.error_codes import ErrorCode

if TYPE_CHECKING:
    from rotunda.broker.log.partition_log import PartitionLog
    from rotunda.broker.metadata.metadata_cache import MetadataCache
    from rotunda.broker.partitions.transaction_messages import VerifyMembership
    from rotunda.broker.records.record_batch import BatchHeader

#: An owner's response that requires verification, with its guard as offset. Not a Kafka error.
NEEDS_VERIFICATION: Final = -2

#: From this Produce version on, producing adds the partition to the transaction.
IMPLICIT_FROM: Final = 12

#: From this Produce version on, clients support TRANSACTION_ABORTABLE.
_ABORTABLE_FROM: Final = 11

#: Most cached guards, one for each partition and producer, about 300 bytes each; records with an evicted guard are
#: verified once more. Far more than are in use at a time: with fewer, retries would evict each other's guards, and
#: never be appended.
MOST_GUARDS: Final = 100_000

_SEQUENCE_MASK: Final = 2**31 - 1
_OUT_OF_ORDER: Final = int(ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER)
_INVALID_EPOCH: Final = int(ErrorCode.INVALID_PRODUCER_EPOCH)


class VerificationGuards:
    """The guards of an owner, for transactions that its logs do not have yet. Lost when it dies."""

    def __init__(self, numbers: Iterator[int]) -> None:
        self._numbers = numbers
        #: By (row, producer id): the guard, the latest epoch, and its lowest sequence number rejected for lack of it.
        self._guards: dict[tuple[int, int], tuple[int, int, int]] = {}

    def validate(self, row: int, log: PartitionLog, header: BatchHeader, version: int, guard: int) -> tuple[int, int]:
        """Return (0, -1) if a transactional batch may be staged, else (error, -1) or (NEEDS_VERIFICATION, guard).

        ``version`` is that of its Produce request.
        """
        producer_id, epoch, sequence = header.producer_id, header.producer_epoch, header.base_sequence
        if log.ongoing_transaction(producer_id, epoch):
            return 0, -1
        if log.is_fenced(producer_id, epoch):
            # Regardless of the coordinator's response, which may not even have the producer under this transactional
            # id.
            return _INVALID_EPOCH, -1
        key = row, producer_id
        known = self._guards.get(key)
        if known is None or known[0] != guard:
            number = next(self._numbers) if known is None else known[0]
            if known is None or epoch > known[1] or (epoch == known[1] and _is_before(sequence, known[2])):
                known = number, epoch, sequence
            if key not in self._guards and len(self._guards) >= MOST_GUARDS:
                del self._guards[next(iter(self._guards))]
            self._guards[key] = known
            return NEEDS_VERIFICATION, number
        if epoch == known[1] and _is_before(known[2], sequence):
            # The preceding records are still pending, and a log without the producer would not detect the gap.
            return _OUT_OF_ORDER, -1
        if version >= IMPLICIT_FROM and sequence > 0 and not log.knows_producer(producer_id):
            # A new epoch for each transaction makes every producer start at 0 (KIP-890).
            return _OUT_OF_ORDER, -1
        return 0, -1

    def forget(self, row: int, producer_id: int) -> None:
        """Drop the guard at a marker: verifications from before it are void."""
        self._guards.pop((row, producer_id), None)


def _is_before(one: int, other: int) -> bool:
    """Return whether a sequence number precedes another one; they wrap around to 0."""
    return one != other and ((other - one) & _SEQUENCE_MASK) < _SEQUENCE_MASK >> 1


#: Tries to append a part; the owner's response is passed to `TransactionalParts.tried`.
Try = Callable[[ProducePart], None]

#: Completes a part with an error.
Reject = Callable[[ProducePart, int], None]


class TransactionalParts:
    """The transactional parts of the requests in this handler."""

    def __init__(
        self, metadata: MetadataCache, verify_membership: VerifyMembership, attempt: Try, reject: Reject
    ) -> None:
        self._metadata = metadata
        self._verify_membership = verify_membership
        self._attempt = attempt
        self._reject = reject
        #: By (row, producer id): the part being tried, and the parts queued after it.
        self._queues: dict[tuple[int, int], deque[ProducePart]] = {}
        self._to_verify: list[ProducePart] = []

    def enqueue(self, part: ProducePart) -> None:
        """Append a part when it is first in its queue, which may be now."""
        queue = self._queues.get(part.queue_key)
        if queue is not None:
            queue.append(part)
            return
        self._queues[part.queue_key] = deque((part,))
        self._attempt(part)

    def tried(self, part: ProducePart, error: int, guard: int) -> bool:
        """Handle the owner's response to a part, or its staging here; False if this is not the part's outcome."""
        if error != NEEDS_VERIFICATION:
            self._next(part)
            return True
        if not part.is_being_verified:
            if self._skips_verification(part):
                part.guard = guard
                self._attempt(part)
            else:
                part.is_being_verified = True
                part.guard = guard
                self._to_verify.append(part)
        return False

    def verify(self) -> bool:
        """Send the unverified parts of this loop pass to their coordinators; False if there are none. HOT."""
        if not self._to_verify:
            return False
        parts, self._to_verify = self._to_verify, []
        memberships: dict[tuple[str, Producer, bool], list[ProducePart]] = {}
        for part in parts:
            key = part.transaction[0], part.producer, self._is_verify_only(part)
            memberships.setdefault(key, []).append(part)
        for key, unverified in memberships.items():
            names = [(part.transaction[1], part.part.partition) for part in unverified]
            self._verify(Membership(*key, names), unverified)
        return True

    def _verify(self, membership: Membership, parts: list[ProducePart]) -> None:
        def completed(errors: list[int]) -> None:
            for part, error in zip(parts, errors, strict=True):
                part.is_being_verified = False
                if self._queues.get(part.queue_key, (None,))[0] is not part:
                    continue
                if error:
                    self._reject(part, self._client_error(part, error))
                    self._next(part)
                else:
                    self._attempt(part)

        self._verify_membership(membership, completed)

    def _next(self, part: ProducePart) -> None:
        """Remove a part from its queue and try the next one."""
        queue = self._queues.get(part.queue_key)
        if queue is None or queue[0] is not part:
            return
        queue.popleft()
        while queue and queue[0].produce.complete:
            # An error has closed its request's connection.
            queue.popleft()
        if queue:
            self._attempt(queue[0])
        else:
            del self._queues[part.queue_key]

    def _is_verify_only(self, part: ProducePart) -> bool:
        # Independent of the current `transaction.version`: the client uses the level it saw when it connected.
        return part.produce.request.api_version < IMPLICIT_FROM

    def _skips_verification(self, part: ProducePart) -> bool:
        return self._is_verify_only(part) and not (
            self._metadata.broker_config.transaction_partition_verification_enable
        )

    def _client_error(self, part: ProducePart, error: int) -> int:
        """Return the error to send to a client of that version for the coordinator's error."""
        if error == ErrorCode.PRODUCER_FENCED:
            return int(ErrorCode.INVALID_PRODUCER_EPOCH)
        if error == ErrorCode.TRANSACTION_ABORTABLE and part.produce.request.api_version < _ABORTABLE_FROM:
            return int(ErrorCode.INVALID_TXN_STATE)
        if error in _COORDINATOR_ERRORS or (
            error == ErrorCode.CONCURRENT_TRANSACTIONS and part.produce.request.api_version < IMPLICIT_FROM
        ):
            # Retriable for every client, and without a metadata refresh.
            return int(ErrorCode.NOT_ENOUGH_REPLICAS)
        return error


_COORDINATOR_ERRORS: Final = (
    int(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS),
    int(ErrorCode.COORDINATOR_NOT_AVAILABLE),
    int(ErrorCode.NOT_COORDINATOR),
)
