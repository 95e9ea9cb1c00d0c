"""DescribeQuorum: the cluster's metadata, shown as Kafka's metadata log with one voter, its leader (KIP-595).

Offsets are numbers of changes of the metadata.
"""

from __future__ import annotations

from typing import Any

from rotunda.broker.apis.context import BrokerContext
from rotunda.broker.ipc.request import Request
from rotunda.broker.metadata.topics.topic_validation import CLUSTER_METADATA_TOPIC
from rotunda.broker.protocol.error_codes import ErrorCode
from rotunda.broker.protocol.sliced_responses import Lazily
from rotunda.broker.scheduling.long_responses import at_length
from rotunda.broker.scheduling.slices import Work

_LEADER_EPOCH = 1
_UNKNOWN = -1

#: The only valid request: the one partition of the one topic.
_QUORUM = [(CLUSTER_METADATA_TOPIC, [0])]


def handle_describe_quorum(request: Request, broker: BrokerContext, body: Any) -> dict[str, Any] | Work:
    """Return the quorum of the metadata partition; for a request with others, an error for every partition."""
    named = [topic for topic in body.topics if topic.partitions]
    if [(topic.topic_name, [part.partition_index for part in topic.partitions[:2]]) for topic in named[:2]] != _QUORUM:
        return at_length({"topics": Lazily(body.topics, _rejected_topic)})
    host, port = broker.address_for(request)
    node = {
        "node_id": broker.metadata.broker_config.node_id,
        "listeners": [
            {"name": broker.listeners[request.listener].name, "host": host, "port": port},
        ],
    }
    topics = [{"topic_name": CLUSTER_METADATA_TOPIC, "partitions": [_partition(broker)]}]
    return {"topics": topics, "nodes": [node]}


def _partition(broker: BrokerContext) -> dict[str, Any]:
    node_id, changes = broker.metadata.broker_config.node_id, broker.metadata.version
    voter = {
        "replica_id": node_id,
        "replica_directory_id": bytes(16),
        "log_end_offset": changes,
        "last_fetch_timestamp": _UNKNOWN,
        "last_caught_up_timestamp": broker.clock.wall_ms(),
    }
    return {
        "partition_index": 0,
        "leader_id": node_id,
        "leader_epoch": _LEADER_EPOCH,
        "high_watermark": changes,
        "current_voters": [voter],
    }


def _rejected_topic(topic: Any) -> dict[str, Any]:
    return {"topic_name": topic.topic_name, "partitions": Lazily(topic.partitions, _rejected)}


def _rejected(asked: Any) -> dict[str, Any]:
    error = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    return {
        "partition_index": asked.partition_index,
        "error_code": error,
        "error_message": f"{error.text} Only partition 0 of {CLUSTER_METADATA_TOPIC} has a quorum.",
    }
