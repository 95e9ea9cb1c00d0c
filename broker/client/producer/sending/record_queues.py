"""The queues of a topic's partitions, and draining of ready batches. HOT: once per iteration and batch.

Runs under the accumulator's lock, which is not held while a drained batch is closed: closing compresses it and computes
its checksum. The open batch is the one that the fast path appends to; its bytes are added to the sticky partition's
count when the path is closed (`settle`).
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Final, NamedTuple

from rotunda.broker.client.errors import IllegalState
from rotunda.broker.client.network.snapshot import ClusterSnapshot, Node
from rotunda.broker.client.producer.batches.buffer_pool import BufferPool
from rotunda.broker.client.producer.batches.producer_batch import Lane, ProducerBatch
from rotunda.broker.client.producer.partitioner import BuiltInPartitioner
from rotunda.broker.client.topic_partition import TopicPartition
from rotunda.broker.clock import Clock

if TYPE_CHECKING:
    from rotunda.broker.client.producer.config import ProducerSettings
    from rotunda.broker.client.producer.transactions.transaction_manager import TransactionManager

#: Sequences wrap around to 0: one is earlier than another if it precedes it by less than half of the range.
_SEQUENCES: Final = 1 << 31
_HALF: Final = 1 << 30
FOREVER_MS: Final = float("inf")


class TopicQueues:
    """The queues of a topic (Kafka: TopicInfo). `lanes` has the fast paths of all topics."""

    __slots__ = ("_clock", "_lanes", "_open_batch", "batches", "partitioner", "topic")

    def __init__(self, topic: str, partitioner: BuiltInPartitioner, lanes: dict[str, Lane], clock: Clock) -> None:
        self.topic = topic
        self.partitioner = partitioner
        self.batches: dict[int, deque[ProducerBatch]] = {}
        self._lanes = lanes
        self._clock = clock
        #: The batch of the fast path.
        self._open_batch: ProducerBatch | None = None

    def queue(self, partition: int) -> deque[ProducerBatch]:
        found = self.batches.get(partition)
        if found is None:
            found = self.batches[partition] = deque()
        return found

    def choose(self, cluster: ClusterSnapshot) -> int:
        """Return the sticky partition for the next record."""
        partition = self.partitioner.current(cluster)
        if self._is_last_full(partition) and self.partitioner.add_bytes(0, cluster, may_switch=True):
            return self.partitioner.current(cluster)
        return partition

    def count(self, partition: int, appended_bytes: int, cluster: ClusterSnapshot) -> None:
        self.partitioner.add_bytes(appended_bytes, cluster, may_switch=self._is_last_full(partition))

    def is_open(self, batch: ProducerBatch) -> bool:
        """Return whether the batch has the fast path."""
        return batch is self._open_batch

    def settle(self, cluster: ClusterSnapshot) -> None:
        """Close the fast path, if open, and count the bytes appended by it."""
        batch = self._open_batch
        if batch is not None and self.close_lane():
            self.count(batch.topic_partition.partition, 0, cluster)

    def close_lane(self) -> bool:
        """Close the fast path, if open; return whether it appended to the sticky partition."""
        batch = self._open_batch
        if batch is None:
            return False
        self._lanes.pop(self.topic, None)  # first, so that a thread inside it does not enter again
        appended_bytes = batch.close_lane()
        self._open_batch = None
        if batch.topic_partition.partition != self.partitioner.partition:
            return False
        self.partitioner.produced_bytes += appended_bytes
        return appended_bytes > 0

    def close(self, batch: ProducerBatch) -> None:
        if batch is self._open_batch:
            self.close_lane()
        batch.close_for_appends()

    def reopen(self) -> None:
        """Open the fast path to the sticky partition's last batch, unless it is full."""
        partition = self.partitioner.partition
        queue = self.batches.get(partition) if partition is not None else None
        if queue and not queue[-1].is_full:
            self._open_batch = queue[-1]
            self._lanes[self.topic] = queue[-1].open_lane(self.partitioner.bytes_left, self._clock)

    def _is_last_full(self, partition: int) -> bool:
        queue = self.batches.get(partition)
        return not queue or queue[-1].is_full


class QueuesByTopic:
    """The queues of all topics, and the lock that guards them."""

    __slots__ = ("_clock", "_draw", "_sticky_batch_bytes", "by_topic", "lanes", "lock")

    def __init__(self, sticky_batch_bytes: int, draw: Callable[[int], int], clock: Clock) -> None:
        self.lock = threading.Lock()
        self.by_topic: dict[str, TopicQueues] = {}
        #: The fast path to the open batch, by topic.
        self.lanes: dict[str, Lane] = {}
        self._clock = clock
        self._sticky_batch_bytes = sticky_batch_bytes
        self._draw = draw

    def of(self, topic: str) -> TopicQueues:
        found = self.by_topic.get(topic)
        if found is None:
            partitioner = BuiltInPartitioner(topic, self._sticky_batch_bytes, self._draw)
            found = self.by_topic[topic] = TopicQueues(topic, partitioner, self.lanes, self._clock)
        return found

    def queue(self, partition: TopicPartition) -> deque[ProducerBatch]:
        return self.of(partition.topic).queue(partition.partition)

    def remove(self, batch: ProducerBatch) -> None:
        """Remove a batch from its queue, if queued, and reject further appends to it."""
        self.of(batch.topic_partition.topic).close(batch)
        queue = self.queue(batch.topic_partition)
        if batch in queue:
            queue.remove(batch)

    def close_lanes(self) -> None:
        for queues in self.by_topic.values():
            queues.close_lane()


def insert_in_sequence_order(queue: deque[ProducerBatch], batch: ProducerBatch) -> None:
    """Insert a batch to be retried before those with later sequences and those without (G24)."""
    if not batch.has_sequence:
        raise IllegalState(f"a retried batch of {batch.topic_partition} has no sequence")
    earlier = []
    while queue and queue[0].has_sequence and _is_before(queue[0].base_sequence, batch.base_sequence):
        earlier.append(queue.popleft())
    queue.appendleft(batch)
    queue.extendleft(reversed(earlier))


def _is_before(sequence: int, other: int) -> bool:
    return 0 < (other - sequence) % _SEQUENCES < _HALF


class ReadyCheckResult(NamedTuple):
    """The brokers with ready batches, the time until the next check, and topics with an unknown leader."""

    ready_nodes: list[Node]
    next_ready_check_delay_ms: float
    unknown_leader_topics: set[str]


class NodeLatency:
    """When a broker last had batches ready, and when it could last be sent to."""

    __slots__ = ("drain_ms", "ready_ms")

    def __init__(self, now_ms: float) -> None:
        self.ready_ms = self.drain_ms = now_ms


class BatchDrain:
    """Finds ready batches and drains them. The lock of `queues` guards them."""

    def __init__(
        self, config: ProducerSettings, queues: QueuesByTopic, pool: BufferPool, sequences: TransactionManager | None
    ) -> None:
        self.muted: set[TopicPartition] = set()
        self._config = config
        self._queues = queues
        self._pool = pool
        self._sequences = sequences
        self._drain_indexes: dict[int, int] = {}
        self._latencies: dict[int, NodeLatency] = {}

    def ready(self, cluster: ClusterSnapshot, now_ms: float, is_urgent: bool) -> ReadyCheckResult:
        """Return the brokers that lead partitions with ready batches (G18). `is_urgent`: linger is ignored."""
        ready: dict[int, Node] = {}
        unknown: set[str] = set()
        delay_ms = FOREVER_MS
        is_urgent = (
            is_urgent or self._pool.queued > 0 or (self._sequences is not None and self._sequences.is_completing)
        )
        is_adaptive = self._config.partitioner_adaptive_partitioning_enable
        may_be_slow = self._config.partitioner_availability_timeout_ms > 0
        with self._queues.lock:
            for topic, queues in self._queues.by_topic.items():
                all_count = len(cluster.partitions_for(topic))
                lengths: list[int] = []
                partitions: list[int] = []
                for partition, queue in queues.batches.items():
                    leader = cluster.leader_for(topic, partition)
                    if leader is None:
                        if queue:
                            unknown.add(topic)
                        continue
                    if not may_be_slow or not self._is_slow(leader.id):
                        lengths.append(len(queue))
                        partitions.append(partition)
                    if queue and leader.id not in ready and queue[0].topic_partition not in self.muted:
                        left_ms = self._left_ms(queue, cluster, is_urgent, now_ms)
                        if left_ms <= 0:
                            ready[leader.id] = leader
                        else:
                            delay_ms = min(delay_ms, left_ms)
                known = is_adaptive and len(queues.batches) >= all_count
                queues.partitioner.update_load(lengths if known else None, partitions, all_count)
        return ReadyCheckResult(list(ready.values()), delay_ms, unknown)

    def _left_ms(self, queue: deque[ProducerBatch], cluster: ClusterSnapshot, is_urgent: bool, now_ms: float) -> float:
        """Return the remaining wait of a queue's first batch."""
        first = queue[0]
        if first.attempts:
            return self._backoff_left_ms(first, cluster, now_ms)
        if is_urgent or len(queue) > 1 or first.is_full:
            return 0
        return self._config.linger_ms - first.waited_ms(now_ms)

    def _backoff_left_ms(self, batch: ProducerBatch, cluster: ClusterSnapshot, now_ms: float) -> float:
        """Return the remaining backoff of a failed batch; 0 if there is a new leader (G19)."""
        batch.maybe_update_leader_epoch(cluster.leader_epoch(*batch.topic_partition))
        if not batch.attempts or batch.has_new_leader:
            return 0
        return batch.backoff_ms - batch.waited_ms(now_ms)

    def _is_slow(self, node_id: int) -> bool:
        most_ms = self._config.partitioner_availability_timeout_ms
        latency = self._latencies.get(node_id)
        return latency is not None and latency.ready_ms - latency.drain_ms > most_ms

    def update_node_latency_stats(self, node_id: int, now_ms: float, can_drain: bool) -> None:
        """Record whether a broker with ready batches can be sent to (G13)."""
        if self._config.partitioner_availability_timeout_ms > 0:
            latency = self._latencies.setdefault(node_id, NodeLatency(now_ms))
            if can_drain:
                latency.drain_ms = now_ms
            latency.ready_ms = now_ms

    def drain(
        self, cluster: ClusterSnapshot, nodes: Iterable[Node], max_size: int, now_ms: float
    ) -> Mapping[int, list[ProducerBatch]]:
        """Drain batches for brokers: at most one per partition, up to `max_size` bytes per broker (G20)."""
        return {node.id: self._drain_for(cluster, node, max_size, now_ms) for node in nodes}

    def _drain_for(self, cluster: ClusterSnapshot, node: Node, max_size: int, now_ms: float) -> list[ProducerBatch]:
        partitions = cluster.partitions_of_node(node.id)
        ready: list[ProducerBatch] = []
        size = 0
        start = self._drain_indexes.get(node.id, 0)
        for step in range(len(partitions)):
            index = (start + step) % len(partitions)
            topic, partition = partitions[index][:2]
            with self._queues.lock:
                queues = self._queues.by_topic.get(topic)
                queue = queues.batches.get(partition) if queues is not None else None
                if queues is None or not queue or not self._may_drain(queue[0], cluster, now_ms):
                    continue
                if queues.is_open(queue[0]):
                    queues.settle(cluster)
                if ready and size + queue[0].estimated_size_bytes > max_size:
                    self._drain_indexes[node.id] = index
                    break
                batch = queue.popleft()
                batch.close_for_appends()
                self._give_sequence(batch)
            self._drain_indexes[node.id] = index + 1
            batch.close()
            size += batch.estimated_size_bytes
            ready.append(batch)
            batch.drained(now_ms)
        return ready

    def _may_drain(self, first: ProducerBatch, cluster: ClusterSnapshot, now_ms: float) -> bool:
        partition = first.topic_partition
        if partition in self.muted or self._backoff_left_ms(first, cluster, now_ms) > 0:
            return False
        sequences = self._sequences
        if sequences is None:
            return True
        if not sequences.is_send_to_partition_allowed(partition) or sequences.producer_id_and_epoch[0] < 0:
            return False
        if not first.has_sequence:
            # A new producer id starts when all batches of the old one are complete. Its first batch is sent alone: a
            # broker that does not know the producer accepts any sequence, so a later batch must not arrive first. A
            # retried batch may already be in the log: it must stay among the five by which the broker recognises
            # duplicates.
            waits = sequences.has_in_flight_batches(partition) and (
                sequences.has_stale_producer_id_and_epoch(partition)
                or not sequences.has_acknowledged_batches(partition)
                or sequences.is_sending_again(partition)
            )
            return not waits and not sequences.has_unresolved_sequence(partition)
        # A retry is sent alone: only the earliest in flight, until its response is received (G24).
        in_flight = sequences.first_in_flight_sequence(partition)
        return in_flight < 0 or first.base_sequence == in_flight

    def _give_sequence(self, batch: ProducerBatch) -> None:
        """Assign a producer id and sequence; a retried batch keeps them, to avoid duplicates."""
        sequences = self._sequences
        if sequences is None or batch.has_sequence:
            return
        partition = batch.topic_partition
        sequences.maybe_update_producer_id_and_epoch(partition)
        producer_id, epoch = sequences.producer_id_and_epoch
        batch.set_producer_state(producer_id, epoch, sequences.sequence_number(partition), sequences.is_transactional)
        sequences.increment_sequence_number(partition, batch.record_count)
        sequences.add_in_flight_batch(batch)
