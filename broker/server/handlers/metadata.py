"""Metadata: which topics there are and who leads their partitions. Creates topics if both sides allow it.

The cluster is one broker, told by the address of the listener that the request came in on (``C18``); it leads
every partition, always.
"""

from __future__ import annotations

from collections.abc import Iterable

from broker.errors import ApiError
from broker.protocol.error_codes import ErrorCode
from broker.protocol.messages.metadata import (
    MetadataBroker,
    MetadataPartition,
    MetadataRequest,
    MetadataRequestTopic,
    MetadataResponse,
    MetadataTopic,
)
from broker.server.handlers.authorized_operations import cluster_operations, topic_operations
from broker.server.metadata_cache import MetadataCache, TopicInfo
from broker.server.partition_ends import published_leader_epoch
from broker.server.request_context import Parked, RequestContext
from broker.topic_rules import check_topic_name, metric_name

#: How long a request waits for the topics that it had created. The client asks again after an error.
AUTO_CREATE_WAIT_MS = 2000

#: Below this version a topic cannot be asked for by its id.
_FIRST_WITH_TOPIC_IDS = 12

_NO_ID = bytes(16)


def handle_metadata(context: RequestContext, request: MetadataRequest) -> MetadataResponse | Parked:
    """Return the answer, or a wait for the topics that are being created."""
    missing = _creatable(context, request)
    if not missing:
        return _response(context, request)
    context.broker.create_topics_later(missing)

    def retry(final: bool) -> MetadataResponse | None:
        metadata = context.broker.metadata
        if final or all(metadata.topic(name) is not None for name in missing):
            return _response(context, request)
        return None

    return Parked(AUTO_CREATE_WAIT_MS, retry)


def _creatable(context: RequestContext, request: MetadataRequest) -> list[str]:
    """Return the names that are asked for, do not exist, and may come to exist."""
    metadata = context.broker.metadata
    allowed = request.allow_auto_topic_creation and metadata.broker_config.auto_create_topics_enable
    if request.topics is None or not allowed:
        return []
    names = dict.fromkeys(topic.name for topic in request.topics if topic.name is not None)
    missing = [name for name in names if metadata.topic(name) is None and not _name_error(name)]
    return [name for name in missing if not _collides(metadata, name)]


def _collides(metadata: MetadataCache, name: str) -> bool:
    wanted = metric_name(name)
    return any(metric_name(topic.name) == wanted for topic in metadata.topics())


def _name_error(name: str) -> int:
    try:
        check_topic_name(name)
    except ApiError as error:
        return error.code
    return 0


def _response(context: RequestContext, request: MetadataRequest) -> MetadataResponse:
    broker, listener = context.broker, context.listener
    node_id = broker.config.node_id
    return MetadataResponse(
        throttle_ms=0,
        brokers=[MetadataBroker(node_id, listener.advertised_host, listener.advertised_port)],
        cluster_id=broker.heritage.cluster_id,
        controller_id=node_id,
        topics=_topics(context, request),
        cluster_authorized_operations=cluster_operations(request.include_cluster_authorized_operations),
    )


def _topics(context: RequestContext, request: MetadataRequest) -> list[MetadataTopic]:
    operations = topic_operations(request.include_topic_authorized_operations)
    if request.topics is None:
        return [_described(context, topic, operations) for topic in context.broker.metadata.topics()]
    return [_asked_for(context, topic, operations) for topic in _distinct(request.topics)]


def _distinct(topics: Iterable[MetadataRequestTopic]) -> Iterable[MetadataRequestTopic]:
    return dict.fromkeys(topics)


def _asked_for(context: RequestContext, asked: MetadataRequestTopic, operations: int) -> MetadataTopic:
    metadata = context.broker.metadata
    by_id = asked.topic_id != _NO_ID
    if context.api_version < _FIRST_WITH_TOPIC_IDS and (by_id or asked.name is None):
        return MetadataTopic(ErrorCode.INVALID_REQUEST, asked.name, asked.topic_id)
    if by_id:
        topic = metadata.topic_by_id(asked.topic_id)
        return (
            MetadataTopic(ErrorCode.UNKNOWN_TOPIC_ID, None, asked.topic_id)
            if topic is None
            else _described(context, topic, operations)
        )
    if asked.name is None:
        return MetadataTopic(ErrorCode.UNKNOWN_TOPIC_ID, None, _NO_ID)
    topic = metadata.topic(asked.name)
    if topic is None:
        error = _name_error(asked.name) or ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        return MetadataTopic(error, asked.name, _NO_ID)
    return _described(context, topic, operations)


def _described(context: RequestContext, topic: TopicInfo, operations: int) -> MetadataTopic:
    node_id = context.broker.config.node_id
    nodes = (node_id,)
    partitions = [
        MetadataPartition(
            error_code=0,
            partition=partition.index,
            leader_id=node_id,
            leader_epoch=published_leader_epoch(context, partition),
            replica_nodes=nodes,
            isr_nodes=nodes,
        )
        for partition in topic.partitions
    ]
    return MetadataTopic(0, topic.name, topic.topic_id, topic.internal, partitions, operations)
