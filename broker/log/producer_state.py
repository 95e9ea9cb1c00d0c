"""What a partition remembers of its idempotent producers, and how a batch is judged by it (KIP-98, KIP-360).

Per producer id: the newest epoch and the last five batches. A batch that is one of the five is a duplicate and is
answered with the offset that it got the first time; any other must go on exactly where the last one ended. The
state is a pure function of the batches in the log, oldest first; only the owner of the partition has it.
"""

from collections.abc import Iterable
from typing import NamedTuple

from broker.protocol.error_codes import ErrorCode
from broker.protocol.records import BatchHeader, RawHeader

#: How many batches of a producer are remembered; more cannot be in flight (`G24`).
BATCHES_TO_RETAIN = 5

NO_PRODUCER_EPOCH = -1
NO_SEQUENCE = -1
NO_TRANSACTION = -1

#: Sequence numbers run from 0 to 2^31 - 1 and then start again at 0.
SEQUENCE_MASK = 2**31 - 1

_TRANSACTIONAL_BIT = 0x10

_ACCEPTED = 0
_OUT_OF_ORDER = int(ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER)
_DUPLICATE = int(ErrorCode.DUPLICATE_SEQUENCE_NUMBER)
_INVALID_EPOCH = int(ErrorCode.INVALID_PRODUCER_EPOCH)
_INVALID_TXN_STATE = int(ErrorCode.INVALID_TXN_STATE)


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
    """One producer id. `batches` is never changed in place, oldest first."""

    __slots__ = (
        "batches",
        "coordinator_epoch",
        "current_txn_first_offset",
        "epoch",
        "last_timestamp_ms",
        "next_sequence",
        "producer_id",
    )

    def __init__(self, producer_id: int) -> None:
        self.producer_id = producer_id
        self.epoch = NO_PRODUCER_EPOCH
        self.coordinator_epoch = -1
        self.last_timestamp_ms = -1
        self.current_txn_first_offset = NO_TRANSACTION
        self.batches: tuple[CachedBatch, ...] = ()
        self.next_sequence = 0

    def restore(self, batches: tuple[CachedBatch, ...]) -> None:
        """Take over batches read from a snapshot."""
        self.batches = batches
        self.next_sequence = (batches[-1].last_sequence + 1) & SEQUENCE_MASK if batches else 0

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, ProducerEntry):
            return NotImplemented
        return all(getattr(self, name) == getattr(other, name) for name in self.__slots__)

    __hash__ = None  # type: ignore[assignment]  # mutable

    def __repr__(self) -> str:
        return f"ProducerEntry({', '.join(f'{name}={getattr(self, name)}' for name in self.__slots__)})"


class ProducerState:
    """All producers of one partition."""

    __slots__ = ("entries",)

    def __init__(self, entries: Iterable[ProducerEntry] = ()) -> None:
        self.entries: dict[int, ProducerEntry] = {entry.producer_id: entry for entry in entries}

    def judge(self, producer_id: int, epoch: int, base_sequence: int, last_offset_delta: int, attributes: int) -> int:
        """Return 0 to accept a client's batch, 46 if it is a duplicate, or the error code to answer. HOT.

        A producer that is not known may begin with any sequence number: its records may have been deleted.
        """
        entry = self.entries.get(producer_id)
        if entry is None:
            return _ACCEPTED
        if epoch != entry.epoch:
            return self._judge_new_epoch(entry, epoch, base_sequence)
        if base_sequence != entry.next_sequence:
            duplicate = self.find_duplicate(producer_id, base_sequence, last_offset_delta)
            return _OUT_OF_ORDER if duplicate is None else _DUPLICATE
        if entry.current_txn_first_offset >= 0 and not attributes & _TRANSACTIONAL_BIT:
            return _INVALID_TXN_STATE
        return _ACCEPTED

    @staticmethod
    def _judge_new_epoch(entry: ProducerEntry, epoch: int, base_sequence: int) -> int:
        if epoch < entry.epoch:
            return _INVALID_EPOCH
        if base_sequence != 0 and entry.epoch != NO_PRODUCER_EPOCH:
            return _OUT_OF_ORDER
        return _ACCEPTED

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
            entry = self.entries[producer_id] = ProducerEntry(producer_id)
        if entry.epoch != epoch:
            entry.epoch = epoch
            entry.batches = ()
        last_sequence = (base_sequence + last_offset_delta) & SEQUENCE_MASK
        batch = CachedBatch(last_sequence, base_offset + last_offset_delta, last_offset_delta, max_timestamp_ms)
        entry.batches = (*entry.batches[1 - BATCHES_TO_RETAIN :], batch)
        entry.next_sequence = (last_sequence + 1) & SEQUENCE_MASK
        entry.last_timestamp_ms = max_timestamp_ms
        if attributes & _TRANSACTIONAL_BIT and entry.current_txn_first_offset < 0:
            entry.current_txn_first_offset = base_offset

    def replay(self, header: BatchHeader) -> None:
        """Remember a batch read from the log."""
        if header.producer_id < 0:
            return
        if header.is_control:
            self._end_transaction(header)
        else:
            self.append(header, header.base_offset, header.last_offset_delta, header.max_timestamp)

    def _end_transaction(self, header: BatchHeader) -> None:
        entry = self.entries.setdefault(header.producer_id, ProducerEntry(header.producer_id))
        if entry.epoch != header.producer_epoch:
            entry.epoch = header.producer_epoch
            entry.restore(())
        entry.current_txn_first_offset = NO_TRANSACTION
        entry.last_timestamp_ms = header.max_timestamp

    def expire(self, now_ms: int, expiration_ms: int) -> None:
        """Forget producers without an open transaction that wrote nothing for `expiration_ms`."""
        expired = [
            entry.producer_id
            for entry in self.entries.values()
            if entry.current_txn_first_offset < 0 and now_ms - entry.last_timestamp_ms >= expiration_ms
        ]
        for producer_id in expired:
            del self.entries[producer_id]
