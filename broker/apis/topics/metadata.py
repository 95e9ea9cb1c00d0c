"""Metadata: which topics there are and who leads their partitions. Creates topics if both sides allow it.

The cluster is one broker, given by the address of the listener that the request came in on (``C18``); it leads
every partition, always.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from broker.apis.cluster.authorized_operations import cluster_operations, topic_operations
from broker.apis.context import RequestContext
from broker.apis.topics.published_offsets import UNKNOWN_EPOCH, published_leader_epoch
from broker.errors import ApiError
from broker.metadata.metadata_cache import MetadataCache, PartitionInfo, TopicInfo
from broker.metadata.topic_validation import check_topic_name
from broker.protocol.error_codes import ErrorCode
from broker.protocol.kio_slices import Lazily
from broker.protocol.messages.metadata import (
    MetadataBroker,
    MetadataPartition,
    MetadataRequest,
    MetadataRequestTopic,
    MetadataResponse,
    MetadataTopic,
)
from broker.scheduling.deferred import Deferred
from broker.scheduling.long_answers import at_length, each_of
from broker.scheduling.slices import Work

#: How long a request waits for the topics that it had created. The client asks again after an error.
AUTO_CREATE_WAIT_MS = 2000

#: An answer of more topics or partitions is described in slices: a millisecond.
MOST_TOPICS_AT_ONCE = 100
MOST_PARTITIONS_AT_ONCE = 500

#: Below this version a topic cannot be asked for by its id.
_FIRST_WITH_TOPIC_IDS = 12

_NO_ID = bytes(16)


def handle_metadata(context: RequestContext, request: MetadataRequest) -> MetadataResponse | Deferred | Work:
    """Return the answer, or a wait for the topics that are being created; what is long is done in slices."""
    if len(request.topics or ()) > MOST_TOPICS_AT_ONCE:
        return _at_length(context, request)
    missing = [name for name in _distinct_names(context, request) if _is_creatable(context.broker.metadata, name)]
    return _answer(context, request, missing)


def is_metadata_cacheable(response: MetadataResponse) -> bool:
    """Return whether an answer holds until the metadata change.

    A leader epoch is fixed for a run of the broker, once the partition is open. What is not there may be asked for to
    have it created.
    """
    return not any(
        topic.error_code or any(partition.leader_epoch == UNKNOWN_EPOCH for partition in topic.partitions)
        for topic in response.topics
    )


def _at_length(context: RequestContext, request: MetadataRequest) -> Work:
    missing: list[str] = []
    metadata = context.broker.metadata

    def look_at(name: str) -> None:
        if _is_creatable(metadata, name):
            missing.append(name)

    yield from each_of(_distinct_names(context, request), look_at)
    return _answer(context, request, missing)


def _answer(
    context: RequestContext, request: MetadataRequest, missing: list[str]
) -> MetadataResponse | Deferred | Work:
    if not missing:
        return _described_or_at_length(context, request)
    context.broker.create_topics(missing)
    metadata = context.broker.metadata

    def retry(final: bool) -> MetadataResponse | Work | None:
        while missing and metadata.topic(missing[-1]) is not None:
            missing.pop()
        return _described_or_at_length(context, request) if final or not missing else None

    return Deferred(AUTO_CREATE_WAIT_MS, retry)


def _distinct_names(context: RequestContext, request: MetadataRequest) -> Iterable[str]:
    """Return the names that are asked for, if topics may come to exist by that."""
    allowed = request.allow_auto_topic_creation and context.broker.metadata.broker_config.auto_create_topics_enable
    if request.topics is None or not allowed:
        return ()
    return dict.fromkeys(topic.name for topic in request.topics if topic.name is not None)


def _is_creatable(metadata: MetadataCache, name: str) -> bool:
    """Return whether there is no such topic and there may come to be one."""
    return metadata.topic(name) is None and not _name_error(name) and metadata.colliding(name) is None


def _name_error(name: str) -> int:
    try:
        check_topic_name(name)
    except ApiError as error:
        return error.code
    return 0


def _described_or_at_length(context: RequestContext, request: MetadataRequest) -> MetadataResponse | Work:
    """Return the answer, described at once if it is short."""
    asked = _asked(context, request)
    operations = topic_operations(request.include_topic_authorized_operations)
    topics = Lazily(asked, lambda each: _topic(context, each, operations))
    broker, listener = context.broker, context.listener
    config = broker.metadata.broker_config
    response = MetadataResponse(
        throttle_ms=0,
        brokers=[
            MetadataBroker(config.node_id, listener.advertised_host, listener.advertised_port, config.broker_rack)
        ],
        cluster_id=broker.cluster_id,
        controller_id=config.node_id,
        topics=topics,
        cluster_authorized_operations=cluster_operations(request.include_cluster_authorized_operations),
    )
    if _is_short(context, asked):
        return response._replace(topics=[topic._replace(partitions=list(topic.partitions)) for topic in topics])
    return at_length(response)


def _asked(context: RequestContext, request: MetadataRequest) -> Sequence[MetadataRequestTopic | TopicInfo]:
    """Return what is asked for, each thing once."""
    return context.broker.metadata.topics() if request.topics is None else list(dict.fromkeys(request.topics))


def _is_short(context: RequestContext, asked: Sequence[MetadataRequestTopic | TopicInfo]) -> bool:
    if len(asked) > MOST_TOPICS_AT_ONCE:
        return False
    metadata, partitions = context.broker.metadata, 0
    for each in asked:
        topic = each if isinstance(each, TopicInfo) else _find(metadata, each)
        partitions += 0 if topic is None else len(topic.partitions)
    return partitions <= MOST_PARTITIONS_AT_ONCE


def _find(metadata: MetadataCache, asked: MetadataRequestTopic) -> TopicInfo | None:
    return metadata.topic_by_id(asked.topic_id) if asked.name is None else metadata.topic(asked.name)


def _topic(context: RequestContext, asked: MetadataRequestTopic | TopicInfo, operations: int) -> MetadataTopic:
    if isinstance(asked, TopicInfo):
        return _described(context, asked, operations)
    return _asked_for(context, asked, operations)


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
    node_id = context.broker.metadata.broker_config.node_id
    nodes = (node_id,)

    def describe(partition: PartitionInfo) -> MetadataPartition:
        return MetadataPartition(
            error_code=0,
            partition=partition.index,
            leader_id=node_id,
            leader_epoch=published_leader_epoch(context, partition),
            replica_nodes=nodes,
            isr_nodes=nodes,
        )

    return MetadataTopic(0, topic.name, topic.topic_id, topic.internal, Lazily(topic.partitions, describe), operations)
