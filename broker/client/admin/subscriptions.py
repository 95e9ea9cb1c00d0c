"""Subscriptions and assignments of a classic consumer group, which the coordinator hands on unread."""

from __future__ import annotations

import struct
from typing import Final

from broker.client.topic_partition import TopicPartition
from broker.errors import InvalidReceive
from broker.protocol.primitives import MALFORMED, read_array_count, read_string

_VERSION: Final = struct.Struct(">h")
_PARTITION: Final = struct.Struct(">i")


def assigned_partitions(assignment: bytes) -> tuple[TopicPartition, ...] | None:
    """Return the partitions in a ConsumerProtocolAssignment of any version; empty has none, and None is unreadable."""
    if not assignment:
        return ()
    end = len(assignment)
    found = []
    try:
        topics, offset = read_array_count(assignment, _VERSION.size, end)
        for _ in range(topics):
            topic, offset = read_string(assignment, offset, end)
            partitions, offset = read_array_count(assignment, offset, end)
            for _ in range(partitions):
                found.append(TopicPartition(topic, *_PARTITION.unpack_from(assignment, offset)))
                offset += _PARTITION.size
    except (*MALFORMED, InvalidReceive):
        # Clients may put anything here; a description of the rest is still worth having.
        return None
    return tuple(sorted(found))
