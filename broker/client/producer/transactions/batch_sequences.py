"""Sequence numbers of batches and the handling of their results: the idempotent half of the transaction manager.

Used by the I/O thread alone. Kafka's rules: up to five batches of a partition are in flight, numbered in drain order
and retried in that order. A batch that expired after it was sent makes its partition unresolved: no new batch is sent
until the others have responses. If a sequence is lost, an idempotent producer bumps its epoch and renumbers the batches
in flight from 0 (KIP-360); a transactional one aborts.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from typing import Any, Final, NamedTuple

from rotunda.broker.client.errors import (
    ClusterAuthorizationFailed,
    InvalidProducerIdMapping,
    InvalidTxnState,
    KafkaError,
    OutOfOrderSequence,
    ProducerFenced,
    TransactionAbortable,
    TransactionalIdAuthorizationFailed,
    UnknownProducerId,
    UnsupportedVersion,
    error_of,
)
from rotunda.broker.client.producer.batches.producer_batch import ProducerBatch
from rotunda.broker.client.producer.transactions.transaction_state import (
    NO_PRODUCER_ID,
    ProducerIdAndEpoch,
    ProducerState,
    State,
)
from rotunda.broker.client.topic_partition import TopicPartition
from rotunda.broker.protocol.error_codes import ErrorCode

NO_SEQUENCE: Final = -1
NO_OFFSET: Final = -1
_MASK: Final = 0x7FFF_FFFF
_HALF: Final = 0x4000_0000
LAST_EPOCH = 0x7FFF
_FATAL = (
    ClusterAuthorizationFailed,
    TransactionalIdAuthorizationFailed,
    ProducerFenced,
    UnsupportedVersion,
    InvalidProducerIdMapping,
)


class Outcome(NamedTuple):
    """The result of a partition's batch: the fields of its response, or of a response that was not received."""

    error_code: int = 0
    error_message: str | None = None
    base_offset: int = NO_OFFSET
    log_append_time_ms: int = -1
    log_start_offset: int = NO_OFFSET
    #: Of the compiled response: `batch_index`, `batch_index_error_message`.
    record_errors: Sequence[Any] = ()


def sequence_after(sequence: int, records: int) -> int:
    """Return the sequence `records` after this one, with wrap-around."""
    return (sequence + records) & _MASK


def is_behind(sequence: int, other: int) -> bool:
    """Return whether a sequence follows another by less than half of the sequence space."""
    return 0 < (sequence - other) & _MASK < _HALF


class PartitionEntry:
    """Sequences of one partition."""

    __slots__ = ("in_flight", "last_acked_offset", "last_acked_sequence", "next_sequence", "producer_id_and_epoch")

    def __init__(self) -> None:
        self.producer_id_and_epoch = NO_PRODUCER_ID
        self.next_sequence = 0
        self.last_acked_sequence = NO_SEQUENCE
        self.last_acked_offset = NO_OFFSET
        self.in_flight: list[ProducerBatch] = []
        """Sent, or waiting for a retry, in the order of their sequences."""

    def add_in_flight(self, batch: ProducerBatch) -> None:
        self.in_flight.append(batch)
        if len(self.in_flight) > 1:
            self.in_flight.sort(key=self._order)

    def remove_in_flight(self, batch: ProducerBatch) -> None:
        """Remove a batch, if present."""
        self.in_flight = [each for each in self.in_flight if each is not batch]

    def acknowledge(self, sequence: int) -> None:
        """Record an acknowledged sequence, unless a later one is known."""
        if self.last_acked_sequence == NO_SEQUENCE or is_behind(sequence, self.last_acked_sequence):
            self.last_acked_sequence = sequence

    def is_next(self, sequence: int) -> bool:
        """Return whether a sequence directly follows the last acknowledged one."""
        return sequence == sequence_after(self.last_acked_sequence, 1)

    def start_at_beginning(self, producer_id_and_epoch: ProducerIdAndEpoch) -> None:
        """Renumber the batches in flight from 0 with a new producer id or epoch."""
        sequence = 0
        for batch in self.in_flight:
            batch.reset_producer_state(producer_id_and_epoch, sequence)
            sequence += batch.record_count
        self.producer_id_and_epoch = producer_id_and_epoch
        self.next_sequence = sequence
        self.last_acked_sequence = NO_SEQUENCE

    def close_gap(self, failed: ProducerBatch) -> None:
        """Shift the sequences of later batches down by those of a batch that was rejected permanently."""
        behind = self._order(failed)
        for batch in self.in_flight:
            if self._order(batch) > behind:
                earlier = sequence_after(batch.base_sequence, -failed.record_count)
                batch.reset_producer_state(ProducerIdAndEpoch(batch.producer_id, batch.producer_epoch), earlier)
        self.next_sequence = sequence_after(self.next_sequence, -failed.record_count)

    def _order(self, batch: ProducerBatch) -> tuple[int, int, int]:
        return batch.producer_id, batch.producer_epoch, (batch.base_sequence - self.next_sequence) & _MASK


class BatchSequences(ProducerState):
    """A producer's state and the sequences of its batches."""

    def __init__(self, transactional_id: str | None) -> None:
        super().__init__(transactional_id)
        self.epoch_bump_required = False
        """Whether this client needs the next epoch."""
        self.transaction_v2 = False
        """Whether the cluster supports transaction protocol 2 (KIP-890): each EndTxn returns the next epoch."""
        self.coordinator_bumps_epochs = False
        """Whether InitProducerId can request the next epoch (KIP-360: version 3)."""
        self._partitions: defaultdict[TopicPartition, PartitionEntry] = defaultdict(PartitionEntry)
        self._unresolved: dict[TopicPartition, int] = {}
        """The sequence after the last batch that expired after it was sent."""
        self._to_renumber: set[TopicPartition] = set()

    def sequence_number(self, partition: TopicPartition) -> int:
        return self._partitions[partition].next_sequence

    def increment_sequence_number(self, partition: TopicPartition, records: int) -> None:
        entry = self._partitions[partition]
        entry.next_sequence = sequence_after(entry.next_sequence, records)

    def add_in_flight_batch(self, batch: ProducerBatch) -> None:
        self._partitions[batch.topic_partition].add_in_flight(batch)

    def remove_in_flight_batch(self, batch: ProducerBatch) -> None:
        entry = self._partitions.get(batch.topic_partition)
        if entry is not None:
            entry.remove_in_flight(batch)

    def has_in_flight_batches(self, partition: TopicPartition) -> bool:
        """Return whether a numbered batch of the partition has no final result yet."""
        entry = self._partitions.get(partition)
        return entry is not None and bool(entry.in_flight)

    def first_in_flight_sequence(self, partition: TopicPartition) -> int:
        """Return the sequence of the earliest batch without a final result; -1 if there is none."""
        entry = self._partitions.get(partition)
        return entry.in_flight[0].base_sequence if entry is not None and entry.in_flight else NO_SEQUENCE

    def has_stale_producer_id_and_epoch(self, partition: TopicPartition) -> bool:
        """Return whether the partition's sequences belong to an earlier producer id or epoch."""
        return self._partitions[partition].producer_id_and_epoch != self.producer_id_and_epoch

    def has_acknowledged_batches(self, partition: TopicPartition) -> bool:
        """Return whether the broker acknowledged a batch of the partition with the current producer id and epoch."""
        return self._partitions[partition].last_acked_sequence != NO_SEQUENCE

    def is_sending_again(self, partition: TopicPartition) -> bool:
        """Return whether a failed batch of the partition is being retried."""
        entry = self._partitions.get(partition)
        return entry is not None and any(batch.attempts for batch in entry.in_flight)

    def maybe_update_producer_id_and_epoch(self, partition: TopicPartition) -> None:
        """Restart at 0 with the current epoch once no batch of an earlier epoch is in flight."""
        if self.has_fatal_error:
            return
        entry = self._partitions[partition]
        if not entry.in_flight and entry.producer_id_and_epoch != self.producer_id_and_epoch:
            entry.start_at_beginning(self.producer_id_and_epoch)

    def has_unresolved_sequence(self, partition: TopicPartition) -> bool:
        """Return whether a batch of the partition expired after it was sent, with an unknown result (`G27`)."""
        return partition in self._unresolved

    def mark_sequence_unresolved(self, batch: ProducerBatch) -> None:
        following = sequence_after(batch.base_sequence, batch.record_count)
        earlier = self._unresolved.get(batch.topic_partition)
        if earlier is None or is_behind(following, earlier):
            self._unresolved[batch.topic_partition] = following

    def maybe_resolve_sequences(self) -> None:
        """Resolve partitions that have no batches in flight any more after one expired."""
        for partition in [each for each in self._unresolved if not self.has_in_flight_batches(each)]:
            del self._unresolved[partition]
            entry = self._partitions[partition]
            if entry.is_next(entry.next_sequence):
                continue  # a later batch was accepted, so the broker had the expired one
            if not self.is_transactional:
                self.request_epoch_bump(partition)
                continue
            text = "records were sent without an acknowledgement, and can no longer be retried"
            self._abortable_if_possible(
                KafkaError(f"{text}: abort the transaction and continue"), KafkaError(f"{text}: close the producer")
            )

    def handle_completed_batch(self, batch: ProducerBatch, response: Outcome) -> None:
        partition = batch.topic_partition
        entry = self._partitions.get(partition)
        if entry is None and response.base_offset != NO_OFFSET and not self.is_transactional:
            entry = self._partitions[partition]
        if entry is None:
            return
        entry.acknowledge(sequence_after(batch.base_sequence, batch.record_count - 1))
        if response.base_offset != NO_OFFSET:
            entry.last_acked_offset = max(entry.last_acked_offset, response.base_offset + batch.record_count - 1)
        entry.remove_in_flight(batch)

    def handle_failed_batch(self, batch: ProducerBatch, error: KafkaError, adjust_sequences: bool) -> None:
        """Record that a batch failed permanently.

        Set `adjust_sequences` if the broker certainly did not append it, so that its sequences are free.
        """
        with self.lock:
            try:
                self.maybe_transition_to_error_state(error)
            finally:
                self.remove_in_flight_batch(batch)
        if self.has_fatal_error:
            return
        partition = batch.topic_partition
        if isinstance(error, UnknownProducerId):
            # The broker accepts sequence 0 from an unknown producer. All batches in flight fail with this error.
            self._partitions.pop(partition, None)
            self._unresolved.pop(partition, None)
        elif not self.is_transactional:
            if adjust_sequences or isinstance(error, OutOfOrderSequence):
                self.request_epoch_bump(partition)
        elif adjust_sequences:
            entry = self._partitions.get(partition)
            if entry is not None:
                entry.close_gap(batch)

    def maybe_transition_to_error_state(self, error: KafkaError) -> None:
        """Record an error of a batch or call: fatal, or one that requires an abort."""
        with self.lock:
            if isinstance(error, _FATAL):
                self.transition_to_fatal_error(error)
            elif self.is_transactional:
                if error.retriable or isinstance(error, InvalidTxnState):
                    # Retries are exhausted. The caller's error must not look retriable (KIP-1050).
                    aborted = TransactionAbortable(f"a request of the transaction failed: {error}")
                    aborted.__cause__ = error
                    error = aborted
                if self.bumps_epoch_itself and not self.is_completing:
                    self.epoch_bump_required = True
                self.transition_to_abortable_error(error)

    def transition_to_abortable_error(self, error: KafkaError) -> None:
        """Require an abort of the transaction. No change if it is already being aborted."""
        if not self.is_aborting:
            self.transition_to(State.ABORTABLE_ERROR, error)

    def transition_to_fatal_error(self, error: KafkaError) -> None:
        """Fail the producer permanently: it can only be closed."""
        self.transition_to(State.FATAL_ERROR, error)

    @property
    def bumps_epoch_itself(self) -> bool:
        """Whether this client must request a new epoch after an error, and can (KIP-360)."""
        return self.coordinator_bumps_epochs and not self.transaction_v2

    @property
    def can_handle_abortable_error(self) -> bool:
        """Whether a new epoch can be obtained; otherwise any transaction error is fatal."""
        return self.coordinator_bumps_epochs or self.transaction_v2

    def _abortable_if_possible(self, abortable: KafkaError, fatal: KafkaError) -> None:
        with self.lock:
            if self.can_handle_abortable_error:
                if self.bumps_epoch_itself:
                    self.epoch_bump_required = True
                self.transition_to_abortable_error(abortable)
            else:
                self.transition_to_fatal_error(fatal)

    def can_retry(self, response: Outcome, batch: ProducerBatch) -> bool:
        """Return whether a failed batch may succeed when retried. May request an epoch bump."""
        if response.error_code == ErrorCode.UNKNOWN_PRODUCER_ID:
            return self._can_retry_unknown_producer(response, batch)
        if response.error_code == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER:
            return self._can_retry_out_of_order(batch)
        return error_of(response.error_code).retriable

    def _can_retry_unknown_producer(self, response: Outcome, batch: ProducerBatch) -> bool:
        if response.log_start_offset == NO_OFFSET or batch.sequence_has_been_reset:
            return True  # the partition moved, or the batches in flight are already renumbered
        partition = batch.topic_partition
        if not self.is_transactional:
            self.request_epoch_bump(partition)
            return True
        entry = self._partitions.get(partition)
        last_acked_offset = entry.last_acked_offset if entry is not None else NO_OFFSET
        if last_acked_offset >= response.log_start_offset:
            return False
        # Retention deleted all of this producer's records and its state with them: no data is lost.
        self._partitions[partition].start_at_beginning(self.producer_id_and_epoch)
        return True

    def _can_retry_out_of_order(self, batch: ProducerBatch) -> bool:
        partition = batch.topic_partition
        entry = self._partitions[partition]
        unresolved = self._unresolved.get(partition)
        if unresolved is None and (batch.sequence_has_been_reset or not entry.is_next(batch.base_sequence)):
            return True  # an earlier batch must be retried first
        if self.is_transactional:
            return False
        if unresolved is None or unresolved == batch.base_sequence:
            self.request_epoch_bump(partition)  # no batch in flight can close the gap
        return True

    def request_epoch_bump(self, partition: TopicPartition) -> None:
        """Request the next epoch of an idempotent producer, and renumbering of the partition's batches."""
        self.epoch_bump_required = True
        self._to_renumber.add(partition)

    def bump_idempotent_epoch(self) -> None:
        """Bump the epoch locally: the broker accepts it with sequence 0."""
        producer_id, epoch = self.producer_id_and_epoch
        self.epoch_bump_required = False
        if epoch == LAST_EPOCH:
            # Renumbering waits for the new id: no batch is drained without one.
            self.producer_id_and_epoch = NO_PRODUCER_ID
            self.transition_to(State.UNINITIALIZED)
        else:
            self.producer_id_and_epoch = ProducerIdAndEpoch(producer_id, epoch + 1)
            self.renumber()

    def renumber(self) -> None:
        """Renumber the batches in flight of the requested partitions, from 0 with the current epoch."""
        for partition in self._to_renumber:
            self._partitions[partition].start_at_beginning(self.producer_id_and_epoch)
            self._unresolved.pop(partition, None)
        self._to_renumber.clear()

    def reset_sequence_numbers(self) -> None:
        """Clear all sequences: a transactional producer starts a new epoch."""
        self._partitions.clear()
        self._unresolved.clear()
