"""The partitions to which records are sent."""

from __future__ import annotations

import random
from collections import Counter

import pytest

from rotunda.broker.client.producer.partitioner import (
    BuiltInPartitioner,
    RoundRobinPartitioner,
    murmur2,
    partition_for_key,
)
from tests.client.producer.clusters import TOPIC, cluster_of
from tests.support.feeds import random_seed


@pytest.mark.parametrize(
    ("key", "expected"),
    [
        (b"21", -973932308),
        (b"foobar", -790332482),
        (b"a-little-bit-long-string", -985981536),
        (b"a-little-bit-longer-string", -1486304829),
        (b"lkjh234lh9fiuh90y23oiuhsafujhadof229phr9h19h89h8", -58897971),
        (b"abc", 479470107),
        (b"", 275646681),
    ],
)
def test_g12_the_hash_is_that_of_kafkas_own_tests(key, expected) -> None:
    assert murmur2(key) == expected % (1 << 32)


def test_g11_a_key_is_hashed_over_all_partitions_without_its_sign() -> None:
    assert partition_for_key(b"21", 7) == (-973932308 & 0x7FFFFFFF) % 7


def test_g13_the_sticky_partition_stays_until_a_batch_is_full_or_twice_its_size_is_there() -> None:
    cluster = cluster_of([1, 2, 1])
    draws = iter([0, 2, 1])
    partitioner = BuiltInPartitioner(TOPIC, 100, lambda count: next(draws) % count)
    assert partitioner.current(cluster) == 0
    assert not partitioner.add_bytes(99, cluster, may_switch=True)
    assert not partitioner.add_bytes(50, cluster, may_switch=False)
    assert partitioner.current(cluster) == 0
    assert partitioner.bytes_left == 51
    assert partitioner.add_bytes(0, cluster, may_switch=True)
    assert partitioner.current(cluster) == 2
    assert not partitioner.add_bytes(199, cluster, may_switch=False)
    assert partitioner.add_bytes(1, cluster, may_switch=False)
    assert partitioner.current(cluster) == 1


def test_g13_partitions_without_a_leader_are_chosen_only_when_none_has_one() -> None:
    some = BuiltInPartitioner(TOPIC, 1)
    assert some.current(cluster_of([None, 1, None])) == 1
    assert BuiltInPartitioner(TOPIC, 1, lambda count: count - 1).current(cluster_of([None, None])) == 1


def test_g13_queues_are_weighed_by_their_length() -> None:
    partitioner = BuiltInPartitioner(TOPIC, 1)
    partitioner.update_load([0, 3, 1], [5, 6, 7], 3)
    assert partitioner.cumulative_weights == [4, 5, 8]
    for lengths, of_all in (([2, 2, 2], 3), ([1], 1), (None, 3), ([], 3)):
        partitioner.update_load(lengths, [5, 6, 7], of_all)
        assert partitioner.cumulative_weights is None
    # One partition is left out, for its broker is slow: the others have weights although they are alike.
    partitioner.update_load([2, 2], [5, 7], 3)
    assert partitioner.cumulative_weights == [1, 2]


def test_g13_partitions_are_drawn_by_their_weights() -> None:
    seed = random_seed()
    print(f"seed {seed}")
    partitioner = BuiltInPartitioner(TOPIC, 1, random.Random(seed).randrange)
    partitioner.update_load([0, 3, 1], [0, 1, 2], 3)
    cluster, draws = cluster_of([1, 1, 1]), 8_000
    found: Counter[int] = Counter()
    for _ in range(draws):
        partitioner.add_bytes(2, cluster, may_switch=False)
        found[partitioner.current(cluster)] += 1
    # Expected 4000, 1000 and 3000; one standard deviation is 45 at most.
    assert abs(found[0] - 4000) < 300
    assert abs(found[1] - 1000) < 300
    assert abs(found[2] - 3000) < 300


def test_g14_round_robin_uses_each_partition_with_a_leader_in_order() -> None:
    partitioner = RoundRobinPartitioner()

    def next_of(leaders: list[int | None]) -> int:
        return partitioner(TOPIC, None, None, None, None, cluster_of(leaders))

    rounds = [next_of([1, None, 2, 1]) for _ in range(9)]
    assert sorted(rounds[:3]) == [0, 2, 3]
    assert rounds[:3] * 3 == rounds
    assert sorted(next_of([None, None]) for _ in range(2)) == [0, 1]


def test_g14_round_robin_begins_at_any_partition() -> None:
    cluster = cluster_of([1, 2, 1, 2])
    # None of four is left out by 200 with a probability above 1e-24.
    assert {RoundRobinPartitioner()(TOPIC, None, None, None, None, cluster) for _ in range(200)} == {0, 1, 2, 3}
