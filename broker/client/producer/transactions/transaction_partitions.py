"""What an idempotent producer knows of each partition: sequences, batches in flight, the last that was acknowledged.

Kafka's TxnPartitionMap. The I/O thread uses it, under the transaction manager's lock. Sequences count records and begin
again at 0 after 2**31 - 1 (Kafka's rule), so their order is that of their distance to the partition's next one.
"""

from __future__ import annotations

from typing import Final

from broker.client.errors import IllegalState
from broker.client.producer.batches.producer_batch import ProducerBatch
from broker.client.producer.transactions.transaction_state import NO_PRODUCER_ID, ProducerIdAndEpoch
from broker.client.topic_partition import TopicPartition

NO_SEQUENCE: Final = -1
NO_OFFSET: Final = -1
_MASK: Final = 0x7FFF_FFFF
_HALF: Final = 0x4000_0000


def sequence_after(sequence: int, records: int) -> int:
    """Return the sequence that stands `records` after another."""
    return (sequence + records) & _MASK


def is_behind(sequence: int, other: int) -> bool:
    """Return whether a sequence stands behind another, by less than half of all there are."""
    return 0 < (sequence - other) & _MASK < _HALF


class PartitionEntry:
    """One partition's sequences."""

    __slots__ = ("in_flight", "last_acked_offset", "last_acked_sequence", "next_sequence", "producer_id_and_epoch")

    def __init__(self) -> None:
        self.producer_id_and_epoch = NO_PRODUCER_ID
        self.next_sequence = 0
        self.last_acked_sequence = NO_SEQUENCE
        self.last_acked_offset = NO_OFFSET
        self.in_flight: list[ProducerBatch] = []
        """Sent, or waiting to be sent again, in the order of their sequences."""

    def add_in_flight(self, batch: ProducerBatch) -> None:
        """Take a batch that has its sequence."""
        self.in_flight.append(batch)
        if len(self.in_flight) > 1:
            self.in_flight.sort(key=self._order)

    def remove_in_flight(self, batch: ProducerBatch) -> None:
        """Forget a batch, if it is known."""
        self.in_flight = [each for each in self.in_flight if each is not batch]

    def acknowledge(self, sequence: int) -> None:
        """Take note of an acknowledged record's sequence, unless a later one is known."""
        if self.last_acked_sequence == NO_SEQUENCE or is_behind(sequence, self.last_acked_sequence):
            self.last_acked_sequence = sequence

    def is_next(self, sequence: int) -> bool:
        """Return whether a sequence follows the last that was acknowledged."""
        return sequence == sequence_after(self.last_acked_sequence, 1)

    def start_at_beginning(self, producer_id_and_epoch: ProducerIdAndEpoch) -> None:
        """Give the batches in flight sequences from 0 with a new producer id or epoch."""
        sequence = 0
        for batch in self.in_flight:
            batch.reset_producer_state(producer_id_and_epoch, sequence)
            sequence += batch.record_count
        self.producer_id_and_epoch = producer_id_and_epoch
        self.next_sequence = sequence
        self.last_acked_sequence = NO_SEQUENCE

    def close_gap(self, failed: ProducerBatch) -> None:
        """Give the batches behind one that the broker has refused for good the sequences that it had."""
        behind = self._order(failed)
        for batch in self.in_flight:
            if self._order(batch) > behind:
                earlier = sequence_after(batch.base_sequence, -failed.record_count)
                batch.reset_producer_state(ProducerIdAndEpoch(batch.producer_id, batch.producer_epoch), earlier)
        self.next_sequence = sequence_after(self.next_sequence, -failed.record_count)

    def _order(self, batch: ProducerBatch) -> tuple[int, int, int]:
        return batch.producer_id, batch.producer_epoch, (batch.base_sequence - self.next_sequence) & _MASK


class TransactionPartitions:
    """The entries of all partitions."""

    def __init__(self) -> None:
        self._entries: dict[TopicPartition, PartitionEntry] = {}

    def get(self, partition: TopicPartition) -> PartitionEntry | None:
        """Return a partition's entry; None if it has none."""
        return self._entries.get(partition)

    def get_or_create(self, partition: TopicPartition) -> PartitionEntry:
        """Return a partition's entry."""
        entry = self._entries.get(partition)
        if entry is None:
            entry = self._entries[partition] = PartitionEntry()
        return entry

    def known(self, partition: TopicPartition) -> PartitionEntry:
        """Return a partition's entry. IllegalState if it has none."""
        entry = self._entries.get(partition)
        if entry is None:
            raise IllegalState(f"{partition} has no sequences")
        return entry

    def remove(self, partition: TopicPartition) -> None:
        """Forget a partition."""
        self._entries.pop(partition, None)

    def reset(self) -> None:
        """Forget all partitions."""
        self._entries.clear()
