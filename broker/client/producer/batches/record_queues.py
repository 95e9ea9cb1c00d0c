"""The queues of one topic's partitions, and the batch that records without key and partition go to now.

Everything here is done under the accumulator's lock. The open batch is the one that the short way leads to: what came
that way is counted towards the sticky partition when it is closed (`settle`).
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable
from typing import Final

from broker.client.errors import IllegalState
from broker.client.network.cluster.snapshot import ClusterSnapshot
from broker.client.producer.batches.producer_batch import Lane, ProducerBatch
from broker.client.producer.partitioner import BuiltInPartitioner
from broker.client.topic_partition import TopicPartition
from broker.clock import Clock

#: Sequences begin again at 0: of two, the one less than half of all before the other is the earlier.
_SEQUENCES: Final = 1 << 31
_HALF: Final = 1 << 30


class TopicQueues:
    """The queues of a topic (Kafka: TopicInfo). `lanes` are the short ways of all topics."""

    __slots__ = ("_clock", "_lanes", "_open_batch", "batches", "partitioner", "topic")

    def __init__(self, topic: str, partitioner: BuiltInPartitioner, lanes: dict[str, Lane], clock: Clock) -> None:
        self.topic = topic
        self.partitioner = partitioner
        self.batches: dict[int, deque[ProducerBatch]] = {}
        self._lanes = lanes
        self._clock = clock
        #: The batch that the short way leads to.
        self._open_batch: ProducerBatch | None = None

    def queue(self, partition: int) -> deque[ProducerBatch]:
        """Return a partition's queue."""
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
        """Count bytes that have come to the sticky partition."""
        self.partitioner.add_bytes(appended_bytes, cluster, may_switch=self._is_last_full(partition))

    def is_open(self, batch: ProducerBatch) -> bool:
        """Return whether the short way leads to a batch."""
        return batch is self._open_batch

    def settle(self, cluster: ClusterSnapshot) -> None:
        """Close the short way, if it is open, and count what has come by it."""
        batch = self._open_batch
        if batch is not None and self.close_lane():
            self.count(batch.topic_partition.partition, 0, cluster)

    def close_lane(self) -> bool:
        """Close the short way, if it is open; return whether anything has come to the sticky partition by it."""
        batch = self._open_batch
        if batch is None:
            return False
        self._lanes.pop(self.topic, None)  # first, so that a thread that is in it does not come again
        appended_bytes = batch.close_lane()
        self._open_batch = None
        if batch.topic_partition.partition != self.partitioner.partition:
            return False
        self.partitioner.produced_bytes += appended_bytes
        return appended_bytes > 0

    def close(self, batch: ProducerBatch) -> None:
        """Let nothing be appended to a batch any more."""
        if batch is self._open_batch:
            self.close_lane()
        batch.close_for_appends()

    def reopen(self) -> None:
        """Open the short way to the sticky partition's last batch, if there is room in it."""
        partition = self.partitioner.partition
        queue = self.batches.get(partition) if partition is not None else None
        if queue and not queue[-1].is_full:
            self._open_batch = queue[-1]
            self._lanes[self.topic] = queue[-1].open_lane(self.partitioner.bytes_left, self._clock)

    def _is_last_full(self, partition: int) -> bool:
        queue = self.batches.get(partition)
        return not queue or queue[-1].is_full


class QueuesByTopic:
    """The queues of all topics, and the one lock that guards them."""

    __slots__ = ("_clock", "_draw", "_sticky_batch_bytes", "by_topic", "lanes", "lock")

    def __init__(self, sticky_batch_bytes: int, draw: Callable[[int], int], clock: Clock) -> None:
        self.lock = threading.Lock()
        self.by_topic: dict[str, TopicQueues] = {}
        #: By topic, the short way to its open batch.
        self.lanes: dict[str, Lane] = {}
        self._clock = clock
        self._sticky_batch_bytes = sticky_batch_bytes
        self._draw = draw

    def of(self, topic: str) -> TopicQueues:
        """Return a topic's queues."""
        found = self.by_topic.get(topic)
        if found is None:
            partitioner = BuiltInPartitioner(topic, self._sticky_batch_bytes, self._draw)
            found = self.by_topic[topic] = TopicQueues(topic, partitioner, self.lanes, self._clock)
        return found

    def queue(self, partition: TopicPartition) -> deque[ProducerBatch]:
        """Return a partition's queue."""
        return self.of(partition.topic).queue(partition.partition)

    def remove(self, batch: ProducerBatch) -> None:
        """Take a batch out, wherever it stands, and let nothing more come to it."""
        self.of(batch.topic_partition.topic).close(batch)
        queue = self.queue(batch.topic_partition)
        if batch in queue:
            queue.remove(batch)

    def close_lanes(self) -> None:
        """Let nothing come by the short way any more."""
        for queues in self.by_topic.values():
            queues.close_lane()


def insert_in_sequence_order(queue: deque[ProducerBatch], batch: ProducerBatch) -> None:
    """Put a batch that is to be sent again before those with later sequences and those without (G24)."""
    if not batch.has_sequence:
        raise IllegalState(f"a batch of {batch.topic_partition} is to be sent again and has no sequence")
    earlier = []
    while queue and queue[0].has_sequence and _is_before(queue[0].base_sequence, batch.base_sequence):
        earlier.append(queue.popleft())
    queue.appendleft(batch)
    queue.extendleft(reversed(earlier))


def _is_before(sequence: int, other: int) -> bool:
    return 0 < (other - sequence) % _SEQUENCES < _HALF
