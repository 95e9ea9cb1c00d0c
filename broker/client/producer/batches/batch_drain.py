"""Which batches are ready to be sent, and taking them for a request: the I/O thread's half of the queues.

HOT: once a turn over all queues, and once a batch. Done under the accumulator's lock, which is not held while a batch
is closed: that packs it and takes its checksum.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Mapping
from typing import Final, NamedTuple, Protocol

from broker.client.network.cluster.snapshot import ClusterSnapshot, Node
from broker.client.producer.batches.buffer_pool import BufferPool
from broker.client.producer.batches.producer_batch import Compression, ProducerBatch
from broker.client.producer.batches.record_queues import QueuesByTopic
from broker.client.topic_partition import TopicPartition

FOREVER_MS: Final = float("inf")


class Sequences(Protocol):
    """What the queues ask about producer ids, sequences and transactions: the `TransactionManager`."""

    @property
    def is_transactional(self) -> bool: ...  # noqa: D102
    @property
    def is_completing(self) -> bool: ...  # noqa: D102
    @property
    def producer_id_and_epoch(self) -> tuple[int, int]: ...  # noqa: D102
    def is_send_to_partition_allowed(self, partition: TopicPartition) -> bool: ...  # noqa: D102
    def has_in_flight_batches(self, partition: TopicPartition) -> bool: ...  # noqa: D102
    def has_stale_producer_id_and_epoch(self, partition: TopicPartition) -> bool: ...  # noqa: D102
    def has_acknowledged_batches(self, partition: TopicPartition) -> bool: ...  # noqa: D102
    def is_sending_again(self, partition: TopicPartition) -> bool: ...  # noqa: D102
    def has_unresolved_sequence(self, partition: TopicPartition) -> bool: ...  # noqa: D102
    def first_in_flight_sequence(self, partition: TopicPartition) -> int: ...  # noqa: D102
    def maybe_update_producer_id_and_epoch(self, partition: TopicPartition) -> None: ...  # noqa: D102
    def sequence_number(self, partition: TopicPartition) -> int: ...  # noqa: D102
    def increment_sequence_number(self, partition: TopicPartition, records: int) -> None: ...  # noqa: D102
    def add_in_flight_batch(self, batch: ProducerBatch) -> None: ...  # noqa: D102


class ReadyCheckResult(NamedTuple):
    """The brokers for which batches are ready, when to look again, and topics of which a leader is not known."""

    ready_nodes: list[Node]
    next_ready_check_delay_ms: float
    unknown_leader_topics: set[str]


class AccumulatorConfig(NamedTuple):
    """The settings by Kafka's names."""

    batch_size: int = 16_384
    compression: Compression = Compression()
    linger_ms: float = 5
    retry_backoff_ms: float = 100
    retry_backoff_max_ms: float = 1000
    delivery_timeout_ms: float = 120_000
    partitioner_adaptive_partitioning_enable: bool = True
    partitioner_availability_timeout_ms: float = 0


class NodeLatency:
    """When a broker had batches ready, and when it last could be sent some."""

    __slots__ = ("drain_ms", "ready_ms")

    def __init__(self, now_ms: float) -> None:
        self.ready_ms = self.drain_ms = now_ms


class BatchDrain:
    """What is ready, and for whom it is taken. `queues` are guarded by their own lock."""

    def __init__(
        self, config: AccumulatorConfig, queues: QueuesByTopic, pool: BufferPool, sequences: Sequences | None
    ) -> None:
        self.muted: set[TopicPartition] = set()
        self._config = config
        self._queues = queues
        self._pool = pool
        self._sequences = sequences
        self._drain_indexes: dict[int, int] = {}
        self._latencies: dict[int, NodeLatency] = {}

    def ready(self, cluster: ClusterSnapshot, now_ms: float, is_urgent: bool) -> ReadyCheckResult:
        """Return the brokers that lead partitions with batches to be sent (G18). `is_urgent`: nobody lingers."""
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
        """Return how long a queue's first batch is still to wait."""
        first = queue[0]
        if first.attempts:
            return self._backoff_left_ms(first, cluster, now_ms)
        if is_urgent or len(queue) > 1 or first.is_full:
            return 0
        return self._config.linger_ms - first.waited_ms(now_ms)

    def _backoff_left_ms(self, batch: ProducerBatch, cluster: ClusterSnapshot, now_ms: float) -> float:
        """Return how long a batch that has failed is still to wait: not at all where there is a new leader (G19)."""
        batch.maybe_update_leader_epoch(cluster.leader_epoch(*batch.topic_partition))
        if not batch.attempts or batch.has_new_leader:
            return 0
        return batch.backoff_ms - batch.waited_ms(now_ms)

    def _is_slow(self, node_id: int) -> bool:
        most_ms = self._config.partitioner_availability_timeout_ms
        latency = self._latencies.get(node_id)
        return latency is not None and latency.ready_ms - latency.drain_ms > most_ms

    def update_node_latency_stats(self, node_id: int, now_ms: float, can_drain: bool) -> None:
        """Take note whether a broker with batches ready can be sent them now (G13)."""
        if self._config.partitioner_availability_timeout_ms > 0:
            latency = self._latencies.setdefault(node_id, NodeLatency(now_ms))
            if can_drain:
                latency.drain_ms = now_ms
            latency.ready_ms = now_ms

    def drain(
        self, cluster: ClusterSnapshot, nodes: Iterable[Node], max_size: int, now_ms: float
    ) -> Mapping[int, list[ProducerBatch]]:
        """Take batches for brokers: of each partition one at most, up to `max_size` bytes a broker (G20)."""
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
            # A new producer id begins when everything of the old one is settled. Its first batch goes alone: a broker
            # that does not know the producer takes any sequence, so a later batch must not come before it. One that
            # is sent again may stand in the log: it must stay among the five by which the broker would know it.
            waits = sequences.has_in_flight_batches(partition) and (
                sequences.has_stale_producer_id_and_epoch(partition)
                or not sequences.has_acknowledged_batches(partition)
                or sequences.is_sending_again(partition)
            )
            return not waits and not sequences.has_unresolved_sequence(partition)
        # A retry goes alone: only the earliest in flight, until its answer has come (G24).
        in_flight = sequences.first_in_flight_sequence(partition)
        return in_flight < 0 or first.base_sequence == in_flight

    def _give_sequence(self, batch: ProducerBatch) -> None:
        """Give a batch its producer id and sequence; one that is sent again keeps them, lest it stand there twice."""
        sequences = self._sequences
        if sequences is None or batch.has_sequence:
            return
        partition = batch.topic_partition
        sequences.maybe_update_producer_id_and_epoch(partition)
        producer_id, epoch = sequences.producer_id_and_epoch
        batch.set_producer_state(producer_id, epoch, sequences.sequence_number(partition), sequences.is_transactional)
        sequences.increment_sequence_number(partition, batch.record_count)
        sequences.add_in_flight_batch(batch)
