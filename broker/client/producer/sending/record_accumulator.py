"""The record queues: one queue of batches per partition, filled by application threads, drained by the I/O thread.

HOT: `append`; a batch's `Lane` is the fast path around it. One lock guards all queues, the sticky partitions and the
set of incomplete batches. Kafka has a lock per queue; with Python's global lock that would save nothing. The lock is
not held while a thread waits for memory, nor while a batch is compressed; the fast path runs without it, and is closed
under it. Lock order: this lock, then the transaction manager's, then the buffer pool's.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Final, NamedTuple

from rotunda.broker.client.errors import KafkaError, ProducerClosed
from rotunda.broker.client.network.backoff import ExponentialBackoff
from rotunda.broker.client.network.snapshot import ClusterSnapshot, Node
from rotunda.broker.client.producer.batches.buffer_pool import BufferPool
from rotunda.broker.client.producer.batches.producer_batch import ProducerBatch
from rotunda.broker.client.producer.batches.record_layout import upper_bound_bytes
from rotunda.broker.client.producer.futures import DeliveryCallback, RecordFuture
from rotunda.broker.client.producer.sending.record_queues import (
    FOREVER_MS,
    BatchDrain,
    QueuesByTopic,
    ReadyCheckResult,
    insert_in_sequence_order,
)
from rotunda.broker.client.topic_partition import TopicPartition
from rotunda.broker.clock import Clock
from rotunda.broker.records.record_batch import BATCH_HEADER_BYTES

if TYPE_CHECKING:
    from rotunda.broker.client.producer.config import ProducerSettings
    from rotunda.broker.client.producer.transactions.transaction_manager import TransactionManager

_IMPROVING_STEP: Final = 0.005
_DETERIORATE_STEP: Final = 0.05
#: Factor for the estimate: batches that exceed their limit may cost more than small ones.
_MARGIN: Final = 1.05
_NS_OF_MS: Final = 1_000_000
_MS_OF_S: Final = 1_000


class CompressionRatios:
    """Estimated compression ratio by topic; initially 1.0."""

    def __init__(self) -> None:
        self._ratios: dict[str, float] = {}

    def room_bytes(self, topic: str, packed_bytes: int) -> int:
        """Return how many uncompressed bytes are expected to fit into `packed_bytes`."""
        return int(packed_bytes / (self._ratios.get(topic, 1.0) * _MARGIN))

    def update(self, topic: str, observed: float) -> None:
        """Adjust a topic's estimate towards an observed ratio."""
        known = self._ratios.get(topic, 1.0)
        if observed > known:
            self._ratios[topic] = max(known + _DETERIORATE_STEP, observed)
        else:
            self._ratios[topic] = max(known - _IMPROVING_STEP, observed)

    def set(self, topic: str, ratio: float) -> None:
        """Set a topic's estimate after a batch was too large."""
        self._ratios[topic] = ratio


class Appended(NamedTuple):
    """A record's future, and whether the I/O thread must be woken."""

    future: RecordFuture
    batch_is_full: bool
    new_batch_created: bool
    partition: TopicPartition


class RecordAccumulator:
    """The queues of all partitions. `now_ms` is the clock's monotonic time."""

    def __init__(
        self,
        config: ProducerSettings,
        pool: BufferPool,
        clock: Clock,
        sequences: TransactionManager | None = None,
        chance: random.Random | None = None,
    ) -> None:
        self.pool = pool
        self.delivery_timeout_ms = config.delivery_timeout_ms
        self.is_closed = False
        self._config = config
        self._compression = config.compression
        self._sequences = sequences
        self._ratios = CompressionRatios()
        self._clock = clock
        chance = chance or random.Random()  # noqa: S311 - no secret
        self._backoff = ExponentialBackoff(config.retry_backoff_ms, config.retry_backoff_max_ms, chance)
        #: With batch.size=0 each record gets its own batch.
        self._batch_size = max(1, config.batch_size)
        self._queues = QueuesByTopic(self._batch_size, chance.randrange, clock)
        self._drain = BatchDrain(config, self._queues, pool, sequences)
        self.lock = self._queues.lock
        #: The fast path to the open batch, by topic.
        self.lanes = self._queues.lanes
        self._incomplete: set[ProducerBatch] = set()
        self._flushes = 0
        self._next_expiry_ms = FOREVER_MS

    # Called by application threads.

    def append(  # noqa: PLR0913 - a record has these fields
        self,
        topic: str,
        partition: int | None,
        timestamp_ms: int,
        key: bytes | None,
        value: bytes | None,
        headers: bytes,
        callback: DeliveryCallback | None,
        max_time_to_block_ms: float,
        now_ms: float,
        cluster: ClusterSnapshot,
    ) -> Appended:
        """Append a record, to the sticky partition if `partition` is None (G16).

        Raises BufferExhausted, ProducerClosed, and RecordTooLarge if the record exceeds the whole buffer.
        """
        size = max(self._batch_size, BATCH_HEADER_BYTES + upper_bound_bytes(key, value, headers))
        granted_bytes = 0
        try:
            while True:
                with self.lock:
                    if self.is_closed:
                        raise ProducerClosed("the producer was closed while a record was appended")
                    queues = self._queues.of(topic)
                    queues.settle(cluster)
                    chosen = queues.choose(cluster) if partition is None else partition
                    queue = queues.queue(chosen)
                    size_before, is_new, future = 0, False, None
                    if queue:
                        size_before = len(queue[-1].buffer)
                        future = queue[-1].try_append(timestamp_ms, key, value, headers, callback)
                        if future is None:
                            queue[-1].close_for_appends()
                            if partition is None and queues.choose(cluster) != chosen:
                                continue
                    if future is None and (granted_bytes or self.pool.try_allocate(size)):
                        granted_bytes = size
                        batch = self._new_batch(TopicPartition(topic, chosen), size, now_ms)
                        queue.append(batch)
                        future = batch.try_append(timestamp_ms, key, value, headers, callback)
                        size_before, is_new, granted_bytes = 0, True, 0
                    if future is not None:
                        if partition is None:
                            queues.count(chosen, len(queue[-1].buffer) - size_before, cluster)
                        queues.reopen()
                        return Appended(future, len(queue) > 1 or queue[-1].is_full, is_new, queue[-1].topic_partition)
                self.pool.allocate(size, max_time_to_block_ms)
                granted_bytes, now_ms = size, self.now_ms()
        finally:
            if granted_bytes:
                self.pool.deallocate(granted_bytes)

    def now_ms(self) -> float:
        """Return the clock's monotonic time in milliseconds."""
        return self._clock.monotonic_ns() / _NS_OF_MS

    def _new_batch(self, partition: TopicPartition, granted_bytes: int, now_ms: float) -> ProducerBatch:
        batch = ProducerBatch(partition, granted_bytes, now_ms, self._compression)
        if self._compression.codec:
            # The limit is the estimated uncompressed size; until compressed, the records use more memory, which is
            # counted.
            packed = BATCH_HEADER_BYTES + self._ratios.room_bytes(partition.topic, granted_bytes - BATCH_HEADER_BYTES)
            more_bytes = packed - granted_bytes
            if more_bytes > 0 and self.pool.try_allocate(more_bytes):
                batch.pooled_bytes += more_bytes
            batch.limit_bytes = min(packed, batch.pooled_bytes)
        self._incomplete.add(batch)
        return batch

    # Flushing and closing.

    def begin_flush(self) -> None:
        """Make all batches ready to send until `await_flush_completion` returns (G35)."""
        with self.lock:
            self._flushes += 1

    def await_flush_completion(self, timeout_s: float | None = None) -> None:
        """Wait for the currently incomplete batches, not for those of later records.

        Raises TimeoutError if one is still incomplete after `timeout_s`.
        """
        until_ms = None if timeout_s is None else self.now_ms() + timeout_s * _MS_OF_S
        try:
            with self.lock:
                waiting = list(self._incomplete)
            while waiting:
                waiting.pop().wait(None if until_ms is None else max(0.0, until_ms - self.now_ms()) / _MS_OF_S)
        finally:
            with self.lock:
                self._flushes -= 1

    def has_incomplete(self) -> bool:
        return bool(self._incomplete)

    def has_undrained(self) -> bool:
        with self.lock:
            return any(queue for queues in self._queues.by_topic.values() for queue in queues.batches.values())

    def abort_incomplete_batches(self) -> None:
        """Fail all batches, including those in flight: the producer is closed by force. No appends may follow."""
        self.abort_batches(ProducerClosed("the producer was closed by force"))
        with self.lock:
            self._queues.by_topic.clear()

    def abort_batches(self, error: KafkaError) -> None:
        """Fail all batches, including those in flight."""
        self._abort(error, lambda _: True)

    def abort_undrained_batches(self, error: KafkaError) -> None:
        """Fail the batches that were never sent."""
        has_sequences = self._sequences is not None
        self._abort(error, lambda batch: not (batch.has_sequence if has_sequences else batch.is_closed))

    def _abort(self, error: KafkaError, is_meant: Callable[[ProducerBatch], bool]) -> None:
        with self.lock:
            meant = [batch for batch in self._incomplete if is_meant(batch)]
            for batch in meant:
                self._queues.remove(batch)
        for batch in meant:
            batch.abort(error)
            self.deallocate(batch)

    def close(self) -> None:
        """Reject appends and wake threads that wait for memory."""
        with self.lock:
            self.is_closed = True
            self._queues.close_lanes()
        self.pool.close()

    # Called by the I/O thread.

    def ready(self, cluster: ClusterSnapshot, now_ms: float) -> ReadyCheckResult:
        """Return the brokers that lead partitions with ready batches (G18)."""
        return self._drain.ready(cluster, now_ms, self.is_closed or self._flushes > 0)

    def drain(
        self, cluster: ClusterSnapshot, nodes: Iterable[Node], max_size: int, now_ms: float
    ) -> Mapping[int, list[ProducerBatch]]:
        """Drain batches for brokers: at most one per partition, up to `max_size` bytes per broker (G20)."""
        drained = self._drain.drain(cluster, nodes, max_size, now_ms)
        if self._compression.codec:
            for batches in drained.values():
                for batch in batches:
                    self._ratios.update(batch.topic_partition.topic, batch.compression_ratio)
        return drained

    def update_node_latency_stats(self, node_id: int, now_ms: float, can_drain: bool) -> None:
        """Record whether a broker with ready batches can be sent to (G13)."""
        self._drain.update_node_latency_stats(node_id, now_ms, can_drain)

    def reenqueue(self, batch: ProducerBatch, now_ms: float) -> None:
        """Queue a batch for a retry: at the front, or in sequence order."""
        batch.reenqueued(now_ms, self._backoff.backoff_ms(batch.attempts))
        with self.lock:
            self._put_back(batch)

    def split_and_reenqueue(self, batch: ProducerBatch) -> int:
        """Queue the parts of a batch that was too large; return their number (G26)."""
        self._ratios.set(batch.topic_partition.topic, max(1.0, batch.compression_ratio))
        size = len(batch.buffer)
        # The broker's limit is below batch.size: halve the batch.
        parts = batch.split(self._batch_size if size > self._batch_size else size // 2)
        with self.lock:
            for part in reversed(parts):
                self._incomplete.add(part)
                if self._sequences is not None:
                    self._sequences.add_in_flight_batch(part)
                self._put_back(part)
        return len(parts)

    def _put_back(self, batch: ProducerBatch) -> None:
        queue = self._queues.queue(batch.topic_partition)
        if self._sequences is None:
            queue.appendleft(batch)
        else:
            insert_in_sequence_order(queue, batch)

    def expired_batches(self, now_ms: float) -> list[ProducerBatch]:
        """Remove and return queued batches older than `delivery.timeout.ms` (G27)."""
        expired = []
        with self.lock:
            for queues in self._queues.by_topic.values():
                for queue in queues.batches.values():
                    while queue and queue[0].has_reached_delivery_timeout(self._config.delivery_timeout_ms, now_ms):
                        queues.close(queue[0])
                        expired.append(queue.popleft())
                    if queue:
                        self.maybe_update_next_batch_expiry_time(queue[0])
        return expired

    def maybe_update_next_batch_expiry_time(self, batch: ProducerBatch) -> None:
        self._next_expiry_ms = min(self._next_expiry_ms, batch.created_ms + self._config.delivery_timeout_ms)

    def reset_next_batch_expiry_time(self) -> None:
        """Reset the next expiry time before it is recomputed."""
        self._next_expiry_ms = FOREVER_MS

    def next_expiry_time_ms(self) -> float:
        """Return the next expiry time known so far."""
        return self._next_expiry_ms

    def deallocate(self, batch: ProducerBatch) -> None:
        """Free a completed batch's memory."""
        with self.lock:
            self._incomplete.discard(batch)
            size, batch.pooled_bytes = batch.pooled_bytes, 0
        if size:
            self.pool.deallocate(size)

    def mute_partition(self, partition: TopicPartition) -> None:
        """Stop draining a partition: a batch of it is in flight (G24)."""
        self._drain.muted.add(partition)

    def unmute_partition(self, partition: TopicPartition) -> None:
        self._drain.muted.discard(partition)
