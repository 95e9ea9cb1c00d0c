"""A partition as on Kafka's leader: batches, producers' last five and epochs, transactions and markers."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from typing import NamedTuple

from rotunda.broker.protocol.error_codes import ErrorCode
from rotunda.broker.records.record_batch import crc_ok, read_header
from rotunda.broker.records.record_reader import iterate_records

_MASK = 0x7FFF_FFFF
KEPT_BATCHES = 5


@dataclass
class ProducerEntry:
    """The log's state of a producer id."""

    epoch: int
    batches: deque[tuple[int, int, int]] = field(default_factory=lambda: deque(maxlen=KEPT_BATCHES))
    """First and last sequence, and the base offset."""
    open_since: int | None = None
    """The first offset of its transaction."""


@dataclass
class Stored:
    """A batch. `outcome` of a transaction's: None while it is open."""

    base_offset: int
    producer_id: int
    values: list[bytes]
    is_transactional: bool
    is_marker: bool = False
    outcome: bool | None = None


class Appended(NamedTuple):
    """A partition's part of a Produce response."""

    error: int
    base_offset: int = -1
    append_time_ms: int = -1


class PartitionLog:
    """The log; it survives its leaders."""

    def __init__(self) -> None:
        self.end = 0
        self.batches: list[Stored] = []
        self.producers: dict[int, ProducerEntry] = {}
        self.start = 0
        self.answer_to_unknown: int = ErrorCode.NONE
        """To a producer that is not known, for any sequence but 0: it is taken as it comes."""

    def append(self, records: memoryview) -> Appended:
        """Append a batch; the result of a repeated one has the first time's offset, and the batch's largest time."""
        head = read_header(records)
        assert head is not None
        assert crc_ok(records, head)
        values = [each.value or b"" for each in iterate_records(records)]
        base = self.end
        if head.producer_id >= 0:
            error, known = self._judge(head.producer_id, head.producer_epoch, head.base_sequence, len(values))
            if error or known is not None:
                return Appended(error) if known is None else Appended(error, known, head.max_timestamp)
            entry = self.producers.get(head.producer_id)
            if entry is None or entry.epoch != head.producer_epoch:
                opened = entry.open_since if entry is not None else None
                entry = self.producers[head.producer_id] = ProducerEntry(head.producer_epoch, open_since=opened)
            entry.batches.append((head.base_sequence, (head.base_sequence + len(values) - 1) & _MASK, base))
            if head.is_transactional and entry.open_since is None:
                entry.open_since = base
        self.batches.append(Stored(base, head.producer_id, values, head.is_transactional))
        self.end += len(values)
        return Appended(ErrorCode.NONE, base)

    def _judge(self, producer_id: int, epoch: int, sequence: int, count: int) -> tuple[int, int | None]:
        entry = self.producers.get(producer_id)
        if entry is None:
            return (self.answer_to_unknown if sequence else ErrorCode.NONE), None
        if epoch < entry.epoch:
            return ErrorCode.INVALID_PRODUCER_EPOCH, None
        if epoch > entry.epoch:
            return (ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER if sequence else ErrorCode.NONE), None
        last = (sequence + count - 1) & _MASK
        for first, until, offset in entry.batches:
            if (first, until) == (sequence, last):
                return ErrorCode.NONE, offset
        expected = (entry.batches[-1][1] + 1) & _MASK if entry.batches else 0
        return (ErrorCode.NONE if sequence == expected else ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER), None

    def write_marker(self, producer_id: int, epoch: int, committed: bool) -> None:
        """End a producer's transaction here."""
        entry = self.producers.setdefault(producer_id, ProducerEntry(epoch))
        if epoch > entry.epoch:
            entry.epoch = epoch
            entry.batches.clear()
        for batch in self.batches:
            if batch.producer_id == producer_id and batch.is_transactional and batch.outcome is None:
                batch.outcome = committed
        entry.open_since = None
        self.batches.append(Stored(self.end, producer_id, [], True, is_marker=True, outcome=committed))
        self.end += 1

    def values(self, committed_only: bool = False) -> list[bytes]:
        """Return all values in their order, or those that a reader of committed records sees."""
        return [
            value
            for batch in self.batches
            if not (committed_only and batch.is_transactional and not batch.outcome)
            for value in batch.values
        ]

    def value_at(self, offset: int) -> bytes | None:
        """Return the value of a record; None where none is."""
        for batch in self.batches:
            if batch.base_offset <= offset < batch.base_offset + len(batch.values):
                return batch.values[offset - batch.base_offset]
        return None

    @property
    def has_open_transaction(self) -> bool:
        return any(entry.open_since is not None for entry in self.producers.values())
