"""Assignments of a classic consumer group, which the coordinator passes on unread."""

from __future__ import annotations

from rotunda.broker.client.topic_partition import TopicPartition
from rotunda.broker.errors import ApiError
from rotunda.broker.protocol.messages.consumer_protocol import decode_assignment


def assigned_partitions(assignment: bytes) -> tuple[TopicPartition, ...] | None:
    """Return the partitions of an assignment of any version in order; None if it is malformed, as clients may do."""
    try:
        found = decode_assignment(assignment)
    except ApiError:
        return None
    return tuple(sorted([TopicPartition(topic, index) for topic, indexes in found.items() for index in indexes]))
