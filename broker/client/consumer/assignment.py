"""What members of a classic consumer group tell each other through its coordinator: who reads what, by ranges.

Bytes of Kafka's ConsumerProtocol in version 0, which every consumer reads. Pure: values in, values out.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Mapping
from typing import Final

from broker.client.admin.offsets import by_topic
from broker.client.topic_partition import TopicPartition
from broker.protocol.primitives import read_array_count, read_string, string_bytes

ASSIGNOR: Final = "range"
_VERSION: Final = struct.Struct(">h")
_INT32: Final = struct.Struct(">i")
_NO_USER_DATA: Final = _INT32.pack(-1)


def subscription(topics: Iterable[str]) -> bytes:
    """Return what a member says of itself: the topics that it wants."""
    names = sorted(topics)
    return _VERSION.pack(0) + _INT32.pack(len(names)) + b"".join(map(string_bytes, names)) + _NO_USER_DATA


def subscribed(metadata: bytes) -> list[str]:
    """Return the topics in a subscription of any version. Raises what malformed bytes raise."""
    count, offset = read_array_count(metadata, _VERSION.size, len(metadata))
    topics = []
    for _ in range(count):
        topic, offset = read_string(metadata, offset, len(metadata))
        topics.append(topic)
    return topics


def assignment(partitions: Iterable[TopicPartition]) -> bytes:
    """Return what the leader tells a member; `broker.client.admin.subscriptions` reads it."""
    parts = [_VERSION.pack(0)]
    topics = by_topic(partitions)
    parts.append(_INT32.pack(len(topics)))
    for topic, numbers in topics.items():
        parts += [string_bytes(topic), _INT32.pack(len(numbers)), *map(_INT32.pack, numbers)]
    return b"".join([*parts, _NO_USER_DATA])


def by_ranges(
    wanted: Mapping[str, Iterable[str]], partitions: Iterable[TopicPartition]
) -> dict[str, list[TopicPartition]]:
    """Return each member's partitions: of each topic a range, the first members one more where it does not go even.

    `wanted` has each member's topics. The rule of Kafka's RangeAssignor for members without instance ids.
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
