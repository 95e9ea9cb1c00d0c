"""The producer state of a partition, and the validation of batches against it (KIP-98, KIP-360, KIP-890).

Per producer id: the newest epoch and the last five batches. A batch that equals one of the five is a duplicate, and is
acknowledged with the original offset; any other must continue the sequence exactly. A transactional batch opens a
transaction, and a marker of the coordinator ends it. The state is a pure function of the batches in the log, oldest
first; only the owner of the partition has it.
"""

from collections import OrderedDict
from collections.abc import Iterator
from heapq import nsmallest
from itertools import islice
from operator import itemgetter

from rotunda.broker.log.indexes.transaction_index import AbortedTransaction
from rotunda.broker.log.producers.packed_producers import NO_PRODUCERS, PackedProducers, pack
from rotunda.broker.log.producers.producer_entry import (
    NO_PRODUCER_EPOCH,
    NO_SEQUENCE,
    NO_TRANSACTION,
    OLDER_BYTES,
    PACKED_BATCH,
    SEQUENCE_MASK,
    CachedBatch,
    ProducerEntry,
)
from rotunda.broker.protocol.error_codes import ErrorCode
from rotunda.broker.records.record_batch import CONTROL_BIT, RawHeader
from rotunda.broker.records.record_writer import EndTransactionMarker

#: Limit of cached producers of one partition; the longest idle are expired, as after `producer.id.expiration.ms`.
#: Clients choose their ids, and that time is Kafka's only limit.
MOST_PRODUCERS = 50_000

_TRANSACTIONAL_BIT = 0x10

_ACCEPTED = 0

_pack_batch = PACKED_BATCH.pack

_FIRST = itemgetter(0)

#: From this transaction version on, a marker has a newer epoch than the records of its transaction (KIP-890).
_EPOCH_BUMP_FROM = 2


class ProducerState:
    """All producers of one partition.

    `open_transactions` has the first offset of each open transaction by producer id, ascending: the first one is the
    last stable offset.
    """

    __slots__ = ("_entries", "_packed", "open_transactions")

    def __init__(self, packed: PackedProducers = NO_PRODUCERS) -> None:
        """Start with ``packed``, the producers of a snapshot."""
        self._packed = packed
        #: By producer id, oldest first: the producer's entry, or its number in `_packed` until its first use.
        self._entries: dict[int, ProducerEntry | int] = {**packed.numbers}
        first_offsets = packed.first_offsets()
        #: Mostly removed from the front: a plain dict would scan the gaps to find its first entry.
        self.open_transactions: OrderedDict[int, int] = OrderedDict()
        if max(first_offsets, default=NO_TRANSACTION) >= 0:
            opened = [pair for pair in zip(first_offsets, packed.numbers, strict=True) if pair[0] >= 0]
            self.open_transactions.update((producer_id, offset) for offset, producer_id in sorted(opened))

    def __len__(self) -> int:
        return len(self._entries)

    def __contains__(self, producer_id: int) -> bool:
        return producer_id in self._entries

    def __iter__(self) -> Iterator[ProducerEntry]:
        """Yield every producer, read-only; each entry is current when it is yielded."""
        for producer_id in list(self._entries):
            entry = self._entries.get(producer_id)
            if entry is not None:
                yield self._packed.entry(entry) if isinstance(entry, int) else entry

    def get(self, producer_id: int) -> ProducerEntry | None:
        """Return a producer, or None."""
        entry = self._entries.get(producer_id)
        return self._unpacked(producer_id, entry) if isinstance(entry, int) else entry

    def pack(self, at_once: int) -> Iterator[tuple[bytes, bytes, bytes]]:
        """Yield the snapshot data of `at_once` producers at a time (see `packed_producers.pack`)."""
        left = iter(self._entries.values())
        while some := list(islice(left, at_once)):
            yield pack(some, self._packed)

    def stable_end(self, end_offset: int) -> int:
        """Return the first offset of the earliest open transaction, or `end_offset` if none is open."""
        return next(iter(self.open_transactions.values()), end_offset)

    def ongoing_transaction(self, producer_id: int, epoch: int) -> bool:
        """Return whether the producer has a transaction open in this partition, in this epoch. HOT."""
        if producer_id not in self.open_transactions:
            return False
        entry = self.get(producer_id)
        return entry is not None and entry.epoch == epoch

    def validate(
        self, producer_id: int, epoch: int, base_sequence: int, last_offset_delta: int, attributes: int
    ) -> int:
        """Return 0 to accept a client's batch, 46 for a duplicate, or the error code to return. HOT.

        An unknown producer may begin with any sequence number: its records may have been deleted.
        """
        entry = self._entries.get(producer_id)
        if isinstance(entry, int):
            entry = self._unpacked(producer_id, entry)
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

    def validate_marker(self, producer_id: int, epoch: int, coordinator_epoch: int, transaction_version: int) -> int:
        """Return 0 to accept a transaction marker, or the error code to return (KIP-98, KIP-890).

        With transaction version 2 the coordinator raises the epoch before it writes the marker, so a marker with the
        epoch of the records is late; if no transaction is open it is a repetition, and is written again.
        """
        entry = self.get(producer_id)
        if entry is None:
            return _ACCEPTED
        if epoch < entry.epoch:
            return ErrorCode.INVALID_PRODUCER_EPOCH
        if epoch == entry.epoch and transaction_version >= _EPOCH_BUMP_FROM and entry.current_txn_first_offset >= 0:
            return ErrorCode.INVALID_PRODUCER_EPOCH
        return ErrorCode.TRANSACTION_COORDINATOR_FENCED if coordinator_epoch < entry.coordinator_epoch else _ACCEPTED

    def find_duplicate(self, producer_id: int, base_sequence: int, last_offset_delta: int) -> CachedBatch | None:
        """Return the cached batch with exactly this sequence range, in the producer's newest epoch."""
        last_sequence = (base_sequence + last_offset_delta) & SEQUENCE_MASK
        entry = self.get(producer_id)
        for batch in entry.batches if entry is not None else ():
            if batch.last_sequence == last_sequence and batch.first_sequence == base_sequence:
                return batch
        return None

    def append(self, header: RawHeader, base_offset: int, last_offset_delta: int, max_timestamp_ms: int) -> None:
        """Record a batch that was assigned its offset. HOT."""
        _, _, _, _, _, attributes, _, _, _, producer_id, epoch, base_sequence, _ = header
        entry = self._entries.get(producer_id)
        if isinstance(entry, int):
            entry = self._unpacked(producer_id, entry)
        if entry is None:
            if len(self._entries) >= MOST_PRODUCERS:
                self._forget_silent()
            entry = self._entries[producer_id] = ProducerEntry(producer_id)
        if entry.epoch != epoch:
            entry.epoch = epoch
            entry.last = entry.older = b""
        last_sequence = (base_sequence + last_offset_delta) & SEQUENCE_MASK if base_sequence >= 0 else NO_SEQUENCE
        entry.older = (entry.older + entry.last)[-OLDER_BYTES:]
        last_offset = base_offset + last_offset_delta
        entry.last = _pack_batch(last_sequence, last_offset, last_offset_delta, max_timestamp_ms)
        entry.next_sequence = (last_sequence + 1) & SEQUENCE_MASK
        entry.last_timestamp_ms = max_timestamp_ms
        if attributes & _TRANSACTIONAL_BIT and entry.current_txn_first_offset < 0:
            entry.current_txn_first_offset = self.open_transactions[producer_id] = base_offset

    def end_transaction(
        self, producer_id: int, epoch: int, marker: EndTransactionMarker, offset: int, timestamp_ms: int
    ) -> AbortedTransaction | None:
        """Record a marker at `offset`. Return the transaction that it aborted, or None."""
        entry = self.get(producer_id)
        if entry is None:
            entry = self._entries[producer_id] = ProducerEntry(producer_id)
        if entry.epoch != epoch:
            entry.epoch = epoch
            entry.forget_batches()
        entry.coordinator_epoch = marker.coordinator_epoch
        entry.last_timestamp_ms = timestamp_ms
        entry.current_txn_first_offset = NO_TRANSACTION
        first_offset = self.open_transactions.pop(producer_id, NO_TRANSACTION)
        if marker.commit or first_offset < 0:
            return None
        return AbortedTransaction(producer_id, first_offset, offset, self.stable_end(offset + 1))

    def replay(
        self, header: RawHeader, marker: EndTransactionMarker | None = None, written_ms: int = 0
    ) -> AbortedTransaction | None:
        """Record a batch read from the log, with its `marker` if it is a control batch. Return the aborted transaction.

        `written_ms` is the producer's time of last use if none of its records has a timestamp.
        """
        base_offset, _, _, _, _, attributes, delta, _, max_timestamp_ms, producer_id, epoch, _, _ = header
        if producer_id < 0:
            return None
        if not attributes & CONTROL_BIT:
            self.append(header, base_offset, delta, max_timestamp_ms if max_timestamp_ms >= 0 else written_ms)
        elif marker is not None:
            return self.end_transaction(producer_id, epoch, marker, base_offset, max_timestamp_ms)
        return None

    def _unpacked(self, producer_id: int, number: int) -> ProducerEntry:
        """Unpack a producer at its first use; its position in `_entries` does not change."""
        entry = self._entries[producer_id] = self._packed.entry(number)
        return entry

    def _forget_silent(self) -> None:
        """Expire a tenth of the producers: those with the oldest last batch, but none with an open transaction."""
        last_offsets, is_open = self._packed.last_offsets(), self.open_transactions
        closed = [
            (last_offsets[entry] if isinstance(entry, int) else entry.last_offset, producer_id)
            for producer_id, entry in self._entries.items()
            if producer_id not in is_open
        ]
        for _, producer_id in nsmallest(max(1, MOST_PRODUCERS // 10), closed, key=_FIRST):
            del self._entries[producer_id]

    def expire(self, now_ms: int, expiration_ms: int) -> None:
        """Expire producers without an open transaction that wrote nothing for `expiration_ms`."""
        timestamps, is_open = self._packed.timestamps(), self.open_transactions
        expired = [
            producer_id
            for producer_id, entry in self._entries.items()
            if now_ms - (timestamps[entry] if isinstance(entry, int) else entry.last_timestamp_ms) >= expiration_ms
            and producer_id not in is_open
        ]
        for producer_id in expired:
            del self._entries[producer_id]
