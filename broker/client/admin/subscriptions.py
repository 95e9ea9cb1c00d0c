"""Assignments of a classic consumer group, which are opaque to the coordinator."""

from __future__ import annotations

from rotunda.broker.client.topic_partition import TopicPartition
from rotunda.broker.errors import ApiError
from rotunda.broker.protocol.messages.consumer_protocol import decode_assignment


def assigned_partitions(assignment: bytes) -> tuple[TopicPartition, ...] | None:
    """Decode an assignment of any version into sorted partitions; None if it is malformed, which clients may cause."""
    try:
        found = decode_assignment(assignment)
    except ApiError:
        return None
    return tuple(sorted([TopicPartition(topic, index) for topic, indexes in found.items() for index in indexes]))
