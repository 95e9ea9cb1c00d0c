"""Partitioners: Kafka's built-in sticky one, round robin, or a user-defined function (G11, G13, G14).

The built-in one keeps a partition until it received `batch.size` bytes, then chooses another at random, weighted by
shorter queues. The accumulator's lock guards its state; the I/O thread updates the queue lengths.
"""

from __future__ import annotations

import random
import struct
import threading
from bisect import bisect_right
from collections.abc import Callable, Sequence
from itertools import accumulate
from typing import TYPE_CHECKING, Any, Final, TypeAlias

if TYPE_CHECKING:
    from rotunda.broker.client.network.snapshot import ClusterSnapshot

_SEED: Final = 0x9747B28C
_M: Final = 0x5BD1E995
_R: Final = 24
_32_BITS: Final = 0xFFFF_FFFF
_31_BITS: Final = 0x7FFF_FFFF
#: Returns the partition's number from topic, key, key bytes, value, value bytes and cluster.
Partitioner: TypeAlias = Callable[[str, Any, bytes | None, Any, bytes | None, "ClusterSnapshot"], int]
_POSITIVE: Final = 0x7FFF_FFFF


def murmur2(data: bytes) -> int:
    """Return the murmur2 hash of a key, unsigned (`G12`)."""
    length = len(data)
    h = _SEED ^ length
    for (k,) in struct.iter_unpack("<I", data[: length & ~3]):
        mixed = k * _M & _32_BITS
        h = h * _M & _32_BITS ^ (mixed ^ mixed >> _R) * _M & _32_BITS
    rest = data[length & ~3 :]
    if rest:
        h = (h ^ int.from_bytes(rest, "little")) * _M & _32_BITS
    h = (h ^ h >> 13) * _M & _32_BITS
    return h ^ h >> 15


def partition_for_key(key: bytes, partitions: int) -> int:
    """Return the partition of a key in a topic with this number of partitions, available or not (G11)."""
    return (murmur2(key) & _31_BITS) % partitions


class BuiltInPartitioner:
    """The sticky partition of one topic, for records without a partition and without a relevant key."""

    def __init__(self, topic: str, sticky_batch_bytes: int, draw: Callable[[int], int] = random.randrange) -> None:
        self.topic = topic
        #: The current partition; None before the first record.
        self.partition: int | None = None
        self.produced_bytes = 0
        self._sticky_batch_bytes = sticky_batch_bytes
        self._draw = draw
        self._cumulative: list[int] | None = None
        self._partitions: Sequence[int] = ()

    def current(self, cluster: ClusterSnapshot) -> int:
        if self.partition is None:
            self.partition = self._next(cluster)
        return self.partition

    def add_bytes(self, appended_bytes: int, cluster: ClusterSnapshot, *, may_switch: bool) -> bool:
        """Count bytes appended to the sticky partition; return whether another partition was chosen.

        `may_switch`: whether its last batch is full. An incomplete batch may grow further, up to twice the size.
        """
        self.produced_bytes += appended_bytes
        size = self._sticky_batch_bytes
        if self.produced_bytes >= 2 * size or (may_switch and self.produced_bytes >= size):
            self.partition = self._next(cluster)
            self.produced_bytes = 0
            return True
        return False

    @property
    def bytes_left(self) -> int:
        """Bytes that the partition may still receive before another one must be chosen."""
        return max(0, 2 * self._sticky_batch_bytes - self.produced_bytes)

    @property
    def cumulative_weights(self) -> Sequence[int] | None:
        """The running sum of the partitions' weights; None if all weights are equal."""
        return self._cumulative

    def update_load(self, queue_lengths: Sequence[int] | None, partitions: Sequence[int], of_all: int) -> None:
        """Update the queue lengths of the selectable partitions; None disables weights (G13)."""
        self._cumulative = None
        if not queue_lengths or of_all < 2:
            return
        longest = max(queue_lengths)
        if min(queue_lengths) == longest and len(queue_lengths) == of_all:
            return
        self._cumulative = list(accumulate(longest + 1 - length for length in queue_lengths))
        self._partitions = partitions

    def _next(self, cluster: ClusterSnapshot) -> int:
        cumulative = self._cumulative
        if cumulative is not None:
            return self._partitions[bisect_right(cumulative, self._draw(cumulative[-1]))]
        candidates = cluster.available_partitions(self.topic) or cluster.partitions_for(self.topic)
        return candidates[self._draw(len(candidates))].partition


class RoundRobinPartitioner:
    """Rotates over the partitions from a random start, with or without keys (G14)."""

    def __init__(self) -> None:
        self._counters: dict[str, int] = {}
        self._lock = threading.Lock()

    def __call__(
        self,
        topic: str,
        _key: object,
        _key_bytes: bytes | None,
        _value: object,
        _value_bytes: bytes | None,
        cluster: ClusterSnapshot,
    ) -> int:
        """Return the next record's partition, among those with a leader, or among all if none has one."""
        with self._lock:
            counter = self._counters.get(topic, random.getrandbits(31)) & _POSITIVE
            self._counters[topic] = counter + 1
        candidates = cluster.available_partitions(topic) or cluster.partitions_for(topic)
        return candidates[counter % len(candidates)].partition
