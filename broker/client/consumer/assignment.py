"""The range assignor of a classic consumer group's leader. Pure functions."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final

from rotunda.broker.client.admin.offsets import by_topic
from rotunda.broker.client.topic_partition import TopicPartition

ASSIGNOR: Final = "range"


def by_ranges(
    wanted: Mapping[str, Iterable[str]], partitions: Iterable[TopicPartition]
) -> dict[str, list[TopicPartition]]:
    """Return each member's partitions: per topic a contiguous range; the first members get the remainder, one each.

    `wanted` has each member's topics. Same rule as Kafka's RangeAssignor for members without instance ids.
    """
    given: dict[str, list[TopicPartition]] = {member: [] for member in wanted}
    for topic, numbers in by_topic(partitions).items():
        members = sorted(member for member, topics in wanted.items() if topic in topics)
        if not members:
            continue
        each, more = divmod(len(numbers), len(members))
        at = 0
        for index, member in enumerate(members):
            size = each + (index < more)
            given[member] += [TopicPartition(topic, number) for number in numbers[at : at + size]]
            at += size
    return given


def partitions_of(leaders: Mapping[TopicPartition, int], topics: Iterable[str]) -> list[TopicPartition]:
    """Return the partitions of these topics in order."""
    wanted = set(topics)
    return sorted(each for each in leaders if each.topic in wanted)
