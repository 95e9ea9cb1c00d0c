"""Transactional records on their way into a partition: none is appended before its transaction is known to go on.

Runs in handler processes, beside Produce. Records of a transaction that is open in the partition's log are appended
like any other. The first ones of a transaction need the word of its coordinator: the owner of the partition refuses
them with a *guard*, the handler that holds the request asks the coordinator and tries again with the guard. A marker
takes the guard away, so nothing gets in on a word that was given before the transaction ended (KIP-890).

Parts of one producer for one partition are tried one after the other: a part that waits is never overtaken.
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
    from rotunda.broker.partitions.transaction_messages import AskMembership
    from rotunda.broker.protocol.records import BatchHeader

#: The answer of an owner that wants the coordinator's word, with its guard for an offset. No error of Kafka's.
NEEDS_VERIFICATION: Final = -2

#: From this version of Produce on records are made part of their transaction by being produced.
IMPLICIT_FROM: Final = 12

#: From this version of Produce on clients know TRANSACTION_ABORTABLE.
_ABORTABLE_FROM: Final = 11

#: Guards that are remembered, one for each partition and producer, in about 300 bytes; records whose guard is forgotten
#: are verified once more. Far more than are under way at a time: else those that come back would drop each other's, and
#: none would ever be appended.
MOST_GUARDS: Final = 100_000

_SEQUENCE_MASK: Final = 2**31 - 1
_OUT_OF_ORDER: Final = int(ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER)
_INVALID_EPOCH: Final = int(ErrorCode.INVALID_PRODUCER_EPOCH)


class VerificationGuards:
    """What the owner of partitions demands of records whose transaction its log does not know. Lost when it dies."""

    def __init__(self, numbers: Iterator[int]) -> None:
        self._numbers = numbers
        #: By (row, producer id): the guard, and of the latest epoch the lowest sequence number refused for want of it.
        self._guards: dict[tuple[int, int], tuple[int, int, int]] = {}

    def judge(self, row: int, log: PartitionLog, header: BatchHeader, version: int, guard: int) -> tuple[int, int]:
        """Return (0, -1) if a transactional batch may be staged, else (error, -1) or (NEEDS_VERIFICATION, guard).

        ``version`` is that of the Produce that brought it.
        """
        producer_id, epoch, sequence = header.producer_id, header.producer_epoch, header.base_sequence
        if log.ongoing_transaction(producer_id, epoch):
            return 0, -1
        if log.is_fenced(producer_id, epoch):
            # Whatever its coordinator would say, which may not even know it under this transactional id.
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
            # The records before these are on their way, and a log that does not know the producer would not miss them.
            return _OUT_OF_ORDER, -1
        if version >= IMPLICIT_FROM and sequence > 0 and not log.knows_producer(producer_id):
            # A new epoch for each transaction makes every producer begin at 0 (KIP-890).
            return _OUT_OF_ORDER, -1
        return 0, -1

    def forget(self, row: int, producer_id: int) -> None:
        """Take note of a marker: what the coordinator said before it is worth nothing any more."""
        self._guards.pop((row, producer_id), None)


def _is_before(one: int, other: int) -> bool:
    """Whether a sequence number comes before another one; they start again at 0."""
    return one != other and ((other - one) & _SEQUENCE_MASK) < _SEQUENCE_MASK >> 1


#: Tries to have a part appended; what the owner says of it is given to `TransactionalParts.tried`.
Try = Callable[[ProducePart], None]

#: Ends a part with an error.
Refuse = Callable[[ProducePart, int], None]


class TransactionalParts:
    """The transactional parts of the requests that this handler has taken."""

    def __init__(self, metadata: MetadataCache, ask_membership: AskMembership, attempt: Try, refuse: Refuse) -> None:
        self._metadata = metadata
        self._ask_membership = ask_membership
        self._attempt = attempt
        self._refuse = refuse
        #: By (row, producer id): the part that is being tried, and those that wait behind it.
        self._queues: dict[tuple[int, int], deque[ProducePart]] = {}
        self._to_verify: list[ProducePart] = []

    @property
    def has_questions(self) -> bool:
        """Whether `ask` has anything to do."""
        return bool(self._to_verify)

    def take(self, part: ProducePart) -> None:
        """Have a part appended when its turn has come, which may be now."""
        queue = self._queues.get(part.queue_key)
        if queue is not None:
            queue.append(part)
            return
        self._queues[part.queue_key] = deque((part,))
        self._attempt(part)

    def tried(self, part: ProducePart, error: int, guard: int) -> bool:
        """Take the owner's answer to a part, or that it is staged here; False if that is not the part's outcome."""
        if error != NEEDS_VERIFICATION:
            self._next(part)
            return True
        if not part.is_being_verified:
            if self._needs_no_word(part):
                part.guard = guard
                self._attempt(part)
            else:
                part.is_being_verified = True
                part.guard = guard
                self._to_verify.append(part)
        return False

    def ask(self) -> None:
        """Ask the coordinators about everything that this turn has found unverified."""
        parts, self._to_verify = self._to_verify, []
        questions: dict[tuple[str, Producer, bool], list[ProducePart]] = {}
        for part in parts:
            key = part.transaction[0], part.producer, self._is_verify_only(part)
            questions.setdefault(key, []).append(part)
        for key, asking in questions.items():
            self._ask(Membership(*key, [(part.transaction[1], part.part.partition) for part in asking]), asking)

    def _ask(self, membership: Membership, parts: list[ProducePart]) -> None:
        def answered(errors: list[int]) -> None:
            for part, error in zip(parts, errors, strict=True):
                part.is_being_verified = False
                if self._queues.get(part.queue_key, (None,))[0] is not part:
                    continue
                if error:
                    self._refuse(part, self._answerable(part, error))
                    self._next(part)
                else:
                    self._attempt(part)

        self._ask_membership(membership, answered)

    def _next(self, part: ProducePart) -> None:
        """Let go of the part that was tried and try the one behind it."""
        queue = self._queues.get(part.queue_key)
        if queue is None or queue[0] is not part:
            return
        queue.popleft()
        while queue and queue[0].produce.complete:
            # Its request met a fault and has no connection any more.
            queue.popleft()
        if queue:
            self._attempt(queue[0])
        else:
            del self._queues[part.queue_key]

    def _is_verify_only(self, part: ProducePart) -> bool:
        # Whatever `transaction.version` is by now: the client goes by the level that it saw when it connected.
        return part.produce.request.api_version < IMPLICIT_FROM

    def _needs_no_word(self, part: ProducePart) -> bool:
        return self._is_verify_only(part) and not (
            self._metadata.broker_config.transaction_partition_verification_enable
        )

    def _answerable(self, part: ProducePart, error: int) -> int:
        """Return what a client of that version takes for what the coordinator has said."""
        if error == ErrorCode.PRODUCER_FENCED:
            return int(ErrorCode.INVALID_PRODUCER_EPOCH)
        if error == ErrorCode.TRANSACTION_ABORTABLE and part.produce.request.api_version < _ABORTABLE_FROM:
            return int(ErrorCode.INVALID_TXN_STATE)
        if error in _COORDINATOR_ERRORS or (
            error == ErrorCode.CONCURRENT_TRANSACTIONS and part.produce.request.api_version < IMPLICIT_FROM
        ):
            # Retriable for every client, and no reason to ask for metadata.
            return int(ErrorCode.NOT_ENOUGH_REPLICAS)
        return error


_COORDINATOR_ERRORS: Final = (
    int(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS),
    int(ErrorCode.COORDINATOR_NOT_AVAILABLE),
    int(ErrorCode.NOT_COORDINATOR),
)
