"""The transaction coordinator by Kafka's rules: transactional ids, the partitions of transactions, and their ends.

Markers are written some time after the response to EndTxn; until then the id is busy (CONCURRENT_TRANSACTIONS). With
transaction protocol 2 every end returns the next epoch, and its markers have it (KIP-890).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from enum import Enum, auto

from rotunda.broker.client.topic_partition import TopicPartition
from rotunda.broker.protocol.error_codes import ErrorCode

LAST_EPOCH = 0x7FFF
"""No producer gets it: with it the coordinator fences the last one."""


class Status(Enum):
    """Of a transaction."""

    EMPTY = auto()
    ONGOING = auto()
    PREPARED = auto()
    COMPLETE = auto()


@dataclass
class Transaction:
    """The state of a transactional id. `last_epoch` is that before the last that the coordinator returned."""

    producer_id: int
    epoch: int = -1
    last_epoch: int = -1
    previous_id: int = -1
    """Whose epochs are used up."""
    status: Status = Status.EMPTY
    committed: bool = False
    partitions: set[TopicPartition] = field(default_factory=set)
    pending_offsets: dict[tuple[str, TopicPartition], int] = field(default_factory=dict)


class Coordinator:
    """All transactional ids. `later` schedules a function after the time that writing markers needs."""

    def __init__(
        self,
        later: Callable[[Callable[[], None]], None],
        write_marker: Callable[[TopicPartition, int, int, bool], None],
    ) -> None:
        self._later = later
        self._write_marker = write_marker
        self._next_producer_id = 1000
        self.first_epoch = 0
        """That of every new transactional id."""
        self.transactions: dict[str, Transaction] = {}
        self.offsets: dict[tuple[str, TopicPartition], int] = {}

    def new_producer_id(self) -> int:
        self._next_producer_id += 1
        return self._next_producer_id

    def init_producer_id(self, name: str, producer_id: int, epoch: int) -> tuple[int, int, int]:
        """Return an error, the producer id and the epoch."""
        known = self.transactions.get(name)
        if known is None:
            known = self.transactions[name] = Transaction(self.new_producer_id(), self.first_epoch - 1)
        if producer_id >= 0:
            if (producer_id, epoch) == (known.previous_id, LAST_EPOCH - 1):
                return ErrorCode.NONE, known.producer_id, known.epoch  # as below
            if producer_id != known.producer_id or epoch not in (known.epoch, known.last_epoch):
                return ErrorCode.PRODUCER_FENCED, -1, -1
            if epoch == known.last_epoch and epoch != known.epoch:
                return ErrorCode.NONE, known.producer_id, known.epoch  # a retry of a request whose response was lost
        if known.status is Status.PREPARED:
            return ErrorCode.CONCURRENT_TRANSACTIONS, -1, -1
        if known.status is Status.ONGOING:
            known.epoch += 1  # fences the producer that has begun it
            self._end(known, committed=False)
            return ErrorCode.CONCURRENT_TRANSACTIONS, -1, -1
        self._bump(known)
        known.status = Status.EMPTY
        return ErrorCode.NONE, known.producer_id, known.epoch

    def add(self, name: str, producer_id: int, epoch: int, partitions: set[TopicPartition]) -> int:
        """Add partitions to a transaction; return an error."""
        known = self.transactions.get(name)
        if known is None or known.producer_id != producer_id:
            return ErrorCode.INVALID_PRODUCER_ID_MAPPING
        if known.epoch != epoch:
            return ErrorCode.PRODUCER_FENCED
        if known.status is Status.PREPARED:
            return ErrorCode.CONCURRENT_TRANSACTIONS
        known.status = Status.ONGOING
        known.partitions |= partitions
        return ErrorCode.NONE

    def has(self, name: str, producer_id: int, epoch: int, partition: TopicPartition) -> bool:
        """Return whether a partition has joined the transaction that a producer has open."""
        known = self.transactions.get(name)
        return (
            known is not None
            and (known.producer_id, known.epoch, known.status) == (producer_id, epoch, Status.ONGOING)
            and partition in known.partitions
        )

    def commit_offsets(
        self, name: str, producer_id: int, epoch: int, offsets: dict[tuple[str, TopicPartition], int]
    ) -> int:
        """Store a group's offsets until the transaction ends; return an error."""
        known = self.transactions.get(name)
        if known is None or known.producer_id != producer_id or known.epoch != epoch:
            return ErrorCode.INVALID_PRODUCER_EPOCH
        if known.status is not Status.ONGOING:
            return ErrorCode.INVALID_TXN_STATE
        known.pending_offsets |= offsets
        return ErrorCode.NONE

    def end(self, name: str, producer_id: int, epoch: int, committed: bool, is_v2: bool) -> tuple[int, int, int]:
        """End a transaction; return an error, and with protocol 2 the producer id and the next epoch."""
        known = self.transactions.get(name)
        if known is None:
            return ErrorCode.INVALID_PRODUCER_ID_MAPPING, -1, -1
        earlier = (known.producer_id, known.last_epoch), (known.previous_id, LAST_EPOCH - 1)
        again = is_v2 and (producer_id, epoch) in earlier and known.status in (Status.PREPARED, Status.COMPLETE)
        if producer_id != known.producer_id and not again:
            return ErrorCode.INVALID_PRODUCER_ID_MAPPING, -1, -1
        if epoch != known.epoch and not again:
            return ErrorCode.PRODUCER_FENCED, -1, -1
        if known.status is Status.PREPARED:
            return ErrorCode.CONCURRENT_TRANSACTIONS, -1, -1
        if known.status is Status.ONGOING:
            self._end(known, committed, bumps=is_v2)
        elif known.status is Status.COMPLETE and known.committed == committed and (again or not is_v2):
            pass  # a retry of a request whose response was lost
        elif is_v2 and not committed:
            self._bump(known)  # nothing has arrived here: an empty abort
            known.status, known.committed = Status.COMPLETE, False
        else:
            return ErrorCode.INVALID_TXN_STATE, -1, -1
        return (ErrorCode.NONE, known.producer_id, known.epoch) if is_v2 else (ErrorCode.NONE, -1, -1)

    def _bump(self, known: Transaction) -> None:
        """Assign the next epoch, or the first one of another producer id."""
        if known.epoch >= LAST_EPOCH - 1:
            known.previous_id, known.producer_id = known.producer_id, self.new_producer_id()
            known.last_epoch, known.epoch = -1, 0
        else:
            known.last_epoch, known.epoch = known.epoch, known.epoch + 1

    def _end(self, known: Transaction, committed: bool, *, bumps: bool = False) -> None:
        known.status, known.committed = Status.PREPARED, committed
        producer_id, epoch = known.producer_id, known.epoch + bumps
        if bumps:
            self._bump(known)

        def write() -> None:
            for partition in sorted(known.partitions):
                self._write_marker(partition, producer_id, epoch, committed)
            if committed:
                self.offsets |= known.pending_offsets
            known.partitions.clear()
            known.pending_offsets.clear()
            known.status = Status.COMPLETE

        self._later(write)
