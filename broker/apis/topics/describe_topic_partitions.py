"""DescribeTopicPartitions: topics by name, a limited number of partitions at a time, with a cursor (KIP-966)."""

from __future__ import annotations

from typing import Any, NamedTuple

from rotunda.broker.apis.cluster.authorized_operations import topic_operations
from rotunda.broker.apis.context import BrokerContext
from rotunda.broker.apis.topics.published_offsets import published_leader_epoch
from rotunda.broker.errors import ApiError
from rotunda.broker.ipc.request import Request
from rotunda.broker.metadata.metadata_cache import PartitionInfo, TopicInfo
from rotunda.broker.metadata.topics.topic_validation import check_topic_name
from rotunda.broker.protocol.error_codes import ErrorCode
from rotunda.broker.protocol.sliced_responses import Lazily
from rotunda.broker.scheduling.long_responses import AT_ONCE, in_order
from rotunda.broker.scheduling.slices import Work
from rotunda.broker.security.acl.acls import ResourceType

#: Kafka's max.request.partition.size.limit.
MOST_PARTITIONS = 2000


class _Start(NamedTuple):
    """The first partition to list."""

    topic: str
    partition: int


def handle_describe_topic_partitions(request: Request, broker: BrokerContext, body: Any) -> Work:
    """Return topics from the cursor on up to the limit of partitions, and the next cursor.

    A negative partition in the cursor is an error of every requested topic.
    """
    start = _Start("", 0)
    if body.cursor is not None:
        start = _Start(body.cursor.topic_name, body.cursor.partition_index)
        if start.partition < 0:
            return _response(Lazily(body.topics, lambda topic: _rejected(topic.name, ErrorCode.INVALID_REQUEST)))
    room = max(1, min(body.response_partition_limit, MOST_PARTITIONS))
    topics: list[dict[str, Any]] = []
    rejected: list[dict[str, Any]] = []
    for number, name in enumerate((yield from _names(broker, body, start)), 1):
        if not number % AT_ONCE:
            yield None
        if rejection := broker.access.rejection(request, ResourceType.TOPIC, name):
            if body.topics:
                rejected.append(_rejected(name, rejection))
            continue
        topic = broker.metadata.topic(name)
        if topic is None:
            topics.append(
                {**_unknown(name), "topic_authorized_operations": topic_operations(request, broker, name, True)}
            )
            continue
        yield None
        first = start.partition if name == start.topic else 0
        if room == 0:
            return _response(topics + rejected, _Start(name, first))
        listed = topic.partitions[first : first + room]
        topics.append(_described(request, broker, topic, listed))
        room -= len(listed)
        if first + len(listed) < len(topic.partitions):
            return _response(topics + rejected, _Start(name, first + len(listed)))
    return _response(topics + rejected)


def _names(broker: BrokerContext, body: Any, start: _Start) -> Work:
    """Return the requested topics' names, all by default, from the cursor on and in order."""
    asked = {topic.name for topic in body.topics} or {topic.name for topic in broker.metadata.topics()}
    return (yield from in_order([name for name in asked if name >= start.topic]))


def _response(topics: list[dict[str, Any]] | Lazily, next_start: _Start | None = None) -> dict[str, Any]:
    cursor = None
    if next_start is not None:
        cursor = {"topic_name": next_start.topic, "partition_index": next_start.partition}
    return {"topics": topics, "next_cursor": cursor}


def _unknown(name: str) -> dict[str, Any]:
    try:
        check_topic_name(name)
        error: int = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    except ApiError as denied:
        error = denied.code
    return _rejected(name, error)


def _rejected(name: str, error: int) -> dict[str, Any]:
    return {"error_code": error, "name": name}


def _described(
    request: Request, broker: BrokerContext, topic: TopicInfo, partitions: tuple[PartitionInfo, ...]
) -> dict[str, Any]:
    node_id = broker.metadata.broker_config.node_id
    return {
        "error_code": 0,
        "name": topic.name,
        "topic_id": topic.topic_id,
        "is_internal": topic.internal,
        "partitions": [
            {
                "error_code": 0,
                "partition_index": partition.index,
                "leader_id": node_id,
                "leader_epoch": published_leader_epoch(broker, partition),
                "replica_nodes": [node_id],
                "isr_nodes": [node_id],
                "eligible_leader_replicas": [],
                "last_known_elr": [],
            }
            for partition in partitions
        ],
        "topic_authorized_operations": topic_operations(request, broker, topic.name, True),
    }
