"""The producer state of a partition, and the checks of a batch against it (KIP-98, KIP-360, KIP-890).

Per producer id: the newest epoch and the last five batches. A batch that is one of the five is a duplicate and is
answered with the offset that it got the first time; any other must go on exactly where the last one ended. A
transactional batch opens a transaction, a marker of the coordinator ends it. The state is a pure function of the
batches in the log, oldest first; only the owner of the partition has it.
"""

import struct
from collections.abc import Iterable
from heapq import nsmallest
from operator import attrgetter
from typing import NamedTuple

from broker.log.indexes.transaction_index import AbortedTransaction
from broker.protocol.error_codes import ErrorCode
from broker.protocol.record_writer import EndTransactionMarker
from broker.protocol.records import BatchHeader, RawHeader

#: How many batches of a producer are remembered; more cannot be in flight (`G24`).
BATCHES_TO_RETAIN = 5

#: So many producers of one partition are remembered; those that have been silent longest are forgotten as after
#: `producer.id.expiration.ms`. Clients choose their ids, and Kafka has no limit but that time.
MOST_PRODUCERS = 50_000

NO_PRODUCER_EPOCH = -1
NO_SEQUENCE = -1
NO_TRANSACTION = -1

#: Sequence numbers run from 0 to 2^31 - 1 and then start again at 0.
SEQUENCE_MASK = 2**31 - 1

_TRANSACTIONAL_BIT = 0x10

_ACCEPTED = 0

_LAST_OFFSET = attrgetter("last_offset")

#: From this transaction version on a marker bears a newer epoch than the records that it ends (KIP-890).
_EPOCH_BUMP_FROM = 2


#: A batch as a snapshot has it: whose it is, and the fields of `CachedBatch`.
PACKED_BATCH = struct.Struct(
    ">q"  # producer id
    "i"  # last sequence
    "q"  # last offset
    "i"  # offset delta
    "q"  # timestamp
)
_pack_batch = PACKED_BATCH.pack
_unpack_last_offset = struct.Struct(">12xq").unpack_from

_OLDER_BYTES = (BATCHES_TO_RETAIN - 1) * PACKED_BATCH.size


class CachedBatch(NamedTuple):
    """A batch that a producer wrote."""

    last_sequence: int
    last_offset: int
    offset_delta: int
    timestamp_ms: int

    @property
    def first_sequence(self) -> int:
        """Sequence number of the first record."""
        return (self.last_sequence - self.offset_delta) & SEQUENCE_MASK

    @property
    def first_offset(self) -> int:
        """Offset of the first record."""
        return self.last_offset - self.offset_delta


class ProducerEntry:
    """One producer id. `last` is its last batch as `PACKED_BATCH`, or empty, `older` those before it, oldest first."""

    __slots__ = (
        "coordinator_epoch",
        "current_txn_first_offset",
        "epoch",
        "last",
        "last_timestamp_ms",
        "next_sequence",
        "older",
        "producer_id",
    )

    def __init__(self, producer_id: int) -> None:
        self.producer_id = producer_id
        self.epoch = NO_PRODUCER_EPOCH
        self.coordinator_epoch = -1
        self.last_timestamp_ms = -1
        self.current_txn_first_offset = NO_TRANSACTION
        self.last = b""
        self.older = b""
        self.next_sequence = 0

    @property
    def batches(self) -> tuple[CachedBatch, ...]:
        """The last batches that it wrote in this epoch, oldest first."""
        return tuple([CachedBatch._make(batch) for _, *batch in PACKED_BATCH.iter_unpack(self.older + self.last)])

    @property
    def last_sequence(self) -> int:
        """Sequence number of the last record written in this epoch, or -1."""
        return PACKED_BATCH.unpack(self.last)[1] if self.last else NO_SEQUENCE

    @property
    def last_offset(self) -> int:
        """Offset of the last record written in this epoch, or -1."""
        offset: int = _unpack_last_offset(self.last)[0] if self.last else -1
        return offset

    def restore(self, last: bytes) -> None:
        """Take over the last batch, read from a snapshot, or none; those before it are forgotten."""
        self.last = last
        self.older = b""
        self.next_sequence = (self.last_sequence + 1) & SEQUENCE_MASK

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, ProducerEntry):
            return NotImplemented
        return all(getattr(self, name) == getattr(other, name) for name in self.__slots__)

    __hash__ = None  # type: ignore[assignment]  # mutable

    def __repr__(self) -> str:
        return f"ProducerEntry({', '.join(f'{name}={getattr(self, name)}' for name in self.__slots__)})"


class ProducerState:
    """All producers of one partition.

    `open_transactions` has the first offset of each open transaction by producer id, ascending: the first is where
    the stable part of the log ends.
    """

    __slots__ = ("entries", "open_transactions")

    def __init__(self, entries: Iterable[ProducerEntry] = ()) -> None:
        self.entries: dict[int, ProducerEntry] = {entry.producer_id: entry for entry in entries}
        opened = [entry for entry in self.entries.values() if entry.current_txn_first_offset >= 0]
        opened.sort(key=lambda entry: entry.current_txn_first_offset)
        self.open_transactions = {entry.producer_id: entry.current_txn_first_offset for entry in opened}

    def stable_end(self, end_offset: int) -> int:
        """Return the first offset of the earliest open transaction, or `end_offset` if none is open."""
        return next(iter(self.open_transactions.values()), end_offset)

    def ongoing_transaction(self, producer_id: int, epoch: int) -> bool:
        """Whether the producer has a transaction open here, in this epoch. HOT."""
        return producer_id in self.open_transactions and self.entries[producer_id].epoch == epoch

    def judge(self, producer_id: int, epoch: int, base_sequence: int, last_offset_delta: int, attributes: int) -> int:
        """Return 0 to accept a client's batch, 46 if it is a duplicate, or the error code to answer. HOT.

        A producer that is not known may begin with any sequence number: its records may have been deleted.
        """
        entry = self.entries.get(producer_id)
        if entry is None:
            return _ACCEPTED
        if epoch != entry.epoch:
            if epoch < entry.epoch:
                return ErrorCode.INVALID_PRODUCER_EPOCH
            if base_sequence > 0 and entry.epoch != NO_PRODUCER_EPOCH:
                return ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
        # A coordinator's batches have no sequence number.
        elif base_sequence != entry.next_sequence and base_sequence >= 0:
            duplicate = self.find_duplicate(producer_id, base_sequence, last_offset_delta)
            return ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER if duplicate is None else ErrorCode.DUPLICATE_SEQUENCE_NUMBER
        if entry.current_txn_first_offset >= 0 and not attributes & _TRANSACTIONAL_BIT:
            return ErrorCode.INVALID_TXN_STATE
        return _ACCEPTED

    def judge_marker(self, producer_id: int, epoch: int, coordinator_epoch: int, transaction_version: int) -> int:
        """Return 0 to accept a transaction marker, or the error code to answer (KIP-98, KIP-890).

        With transaction version 2 the coordinator raises the epoch before it writes the marker, so one with the epoch
        of the records is a late one; if nothing is open it is that marker again, and is written again.
        """
        entry = self.entries.get(producer_id)
        if entry is None:
            return _ACCEPTED
        if epoch < entry.epoch:
            return ErrorCode.INVALID_PRODUCER_EPOCH
        if epoch == entry.epoch and transaction_version >= _EPOCH_BUMP_FROM and entry.current_txn_first_offset >= 0:
            return ErrorCode.INVALID_PRODUCER_EPOCH
        return ErrorCode.TRANSACTION_COORDINATOR_FENCED if coordinator_epoch < entry.coordinator_epoch else _ACCEPTED

    def find_duplicate(self, producer_id: int, base_sequence: int, last_offset_delta: int) -> CachedBatch | None:
        """Return the remembered batch with exactly this sequence range, in the producer's newest epoch."""
        last_sequence = (base_sequence + last_offset_delta) & SEQUENCE_MASK
        for batch in self.entries[producer_id].batches:
            if batch.last_sequence == last_sequence and batch.first_sequence == base_sequence:
                return batch
        return None

    def append(self, header: RawHeader, base_offset: int, last_offset_delta: int, max_timestamp_ms: int) -> None:
        """Remember a batch that has its place in the log. HOT."""
        _, _, _, _, _, attributes, _, _, _, producer_id, epoch, base_sequence, _ = header
        entry = self.entries.get(producer_id)
        if entry is None:
            if len(self.entries) >= MOST_PRODUCERS:
                self._forget_silent()
            entry = self.entries[producer_id] = ProducerEntry(producer_id)
        if entry.epoch != epoch:
            entry.epoch = epoch
            entry.last = entry.older = b""
        last_sequence = (base_sequence + last_offset_delta) & SEQUENCE_MASK if base_sequence >= 0 else NO_SEQUENCE
        entry.older = (entry.older + entry.last)[-_OLDER_BYTES:]
        last_offset = base_offset + last_offset_delta
        entry.last = _pack_batch(producer_id, last_sequence, last_offset, last_offset_delta, max_timestamp_ms)
        entry.next_sequence = (last_sequence + 1) & SEQUENCE_MASK
        entry.last_timestamp_ms = max_timestamp_ms
        if attributes & _TRANSACTIONAL_BIT and entry.current_txn_first_offset < 0:
            entry.current_txn_first_offset = self.open_transactions[producer_id] = base_offset

    def end_transaction(
        self, producer_id: int, epoch: int, marker: EndTransactionMarker, offset: int, timestamp_ms: int
    ) -> AbortedTransaction | None:
        """Remember a marker that stands at `offset`. Return the transaction that it aborted, if it aborted one."""
        entry = self.entries.get(producer_id)
        if entry is None:
            entry = self.entries[producer_id] = ProducerEntry(producer_id)
        if entry.epoch != epoch:
            entry.epoch = epoch
            entry.restore(b"")
        entry.coordinator_epoch = marker.coordinator_epoch
        entry.last_timestamp_ms = timestamp_ms
        entry.current_txn_first_offset = NO_TRANSACTION
        first_offset = self.open_transactions.pop(producer_id, NO_TRANSACTION)
        if marker.commit or first_offset < 0:
            return None
        return AbortedTransaction(producer_id, first_offset, offset, self.stable_end(offset + 1))

    def replay(self, header: BatchHeader, marker: EndTransactionMarker | None = None) -> AbortedTransaction | None:
        """Remember a batch read from the log; `marker` is what a control batch says. Return what it aborted."""
        if header.producer_id < 0:
            return None
        if not header.is_control:
            self.append(header, header.base_offset, header.last_offset_delta, header.max_timestamp)
        elif marker is not None:
            return self.end_transaction(
                header.producer_id, header.producer_epoch, marker, header.base_offset, header.max_timestamp
            )
        return None

    def _forget_silent(self) -> None:
        """Forget a tenth of the producers, those whose last batch lies farthest back, but none with a transaction."""
        closed = [entry for entry in self.entries.values() if entry.current_txn_first_offset < 0]
        for entry in nsmallest(max(1, MOST_PRODUCERS // 10), closed, key=_LAST_OFFSET):
            del self.entries[entry.producer_id]

    def expire(self, now_ms: int, expiration_ms: int) -> None:
        """Forget producers without an open transaction that wrote nothing for `expiration_ms`."""
        expired = [
            entry.producer_id
            for entry in self.entries.values()
            if entry.current_txn_first_offset < 0 and now_ms - entry.last_timestamp_ms >= expiration_ms
        ]
        for producer_id in expired:
            del self.entries[producer_id]
