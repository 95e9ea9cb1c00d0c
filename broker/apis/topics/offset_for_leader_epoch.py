"""OffsetForLeaderEpoch: where a leader epoch ends, for a client that checks for truncation (KIP-320)."""

from __future__ import annotations

from functools import partial
from typing import Any

from rotunda.broker.apis.context import BrokerContext
from rotunda.broker.apis.topics.published_offsets import epoch_error, published_ends
from rotunda.broker.ipc.request import Request
from rotunda.broker.protocol.error_codes import ErrorCode
from rotunda.broker.protocol.sliced_responses import Lazily
from rotunda.broker.scheduling.long_responses import at_length
from rotunda.broker.scheduling.slices import Work
from rotunda.broker.security.acl.acls import ResourceType

_UNDEFINED = -1


def handle_offset_for_leader_epoch(request: Request, broker: BrokerContext, body: Any) -> Work:
    """Return epoch and end offset for each partition; both -1 for an epoch unknown to the log."""

    def topic_response(topic: Any) -> dict[str, Any]:
        partitions = Lazily(topic.partitions, partial(_partition, request, broker, topic.topic))
        return {"topic": topic.topic, "partitions": partitions}

    return at_length({"topics": Lazily(body.topics, topic_response)})


def _partition(request: Request, broker: BrokerContext, topic_name: str, asked: Any) -> dict[str, Any]:
    metadata = broker.metadata
    if broker.access.rejection(request, ResourceType.CLUSTER) and (
        rejection := broker.access.rejection(request, ResourceType.TOPIC, topic_name)
    ):
        return _part(asked.partition, rejection)
    topic, partition = metadata.topic(topic_name), metadata.partition(topic_name, asked.partition)
    if topic is None or partition is None:
        return _part(asked.partition, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    ends = published_ends(broker, topic, partition)
    if ends is None:
        return _part(asked.partition, ErrorCode.NOT_LEADER_OR_FOLLOWER)
    error = epoch_error(asked.current_leader_epoch, ends)
    if error:
        return _part(asked.partition, error)
    if asked.leader_epoch == ends.leader_epoch:
        return _part(asked.partition, 0, ends.leader_epoch, ends.end)
    reader = broker.partitions.reader(partition.row, topic_name, partition.index)
    return _part(asked.partition, 0, *reader.epoch_end_offset(asked.leader_epoch, ends.end))


def _part(partition: int, error: int, leader_epoch: int = _UNDEFINED, end_offset: int = _UNDEFINED) -> dict[str, Any]:
    return {
        "error_code": error,
        "partition": partition,
        "leader_epoch": leader_epoch,
        "end_offset": end_offset,
    }
