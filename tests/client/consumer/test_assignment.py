"""The partitions that the leader of a group assigns to each member."""

import random

from rotunda.broker.client.consumer.group_member import by_ranges
from rotunda.broker.client.topic_partition import TopicPartition


def test_ranges_are_those_of_kafka() -> None:
    """The examples of RangeAssignor's own description: two members, two topics of three partitions each."""
    partitions = [TopicPartition(topic, number) for topic in ("t0", "t1") for number in range(3)]
    given = by_ranges({"c1": ["t0", "t1"], "c0": ["t0", "t1"]}, partitions)
    assert [each[1:] for each in given["c0"]] == [(0,), (1,), (0,), (1,)]
    assert given["c1"] == [TopicPartition("t0", 2), TopicPartition("t1", 2)]


def test_each_partition_is_assigned_to_one_subscribed_member() -> None:
    seed = random.randrange(1 << 30)
    rng = random.Random(seed)
    for _ in range(200):
        topics = [f"t{number}" for number in range(rng.randrange(1, 5))]
        partitions = [TopicPartition(topic, n) for topic in topics for n in range(rng.randrange(1, 9))]
        wanted = {f"m{n}": rng.sample(topics, rng.randrange(len(topics) + 1)) for n in range(rng.randrange(1, 6))}
        given = by_ranges(wanted, partitions)
        handed_out = sorted(each for own in given.values() for each in own)
        assert handed_out == [p for p in sorted(partitions) if any(p.topic in each for each in wanted.values())], seed
        assert all(each.topic in wanted[member] for member, own in given.items() for each in own), seed
