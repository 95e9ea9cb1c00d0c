"""Metadata: the existing topics and their leaders. Creates topics if both sides allow it.

The cluster is one broker, with the address of the request's listener (``C18``); it leads every partition, always.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import partial
from typing import Any

from rotunda.broker.apis.cluster.authorized_operations import cluster_operations, topic_operations
from rotunda.broker.apis.context import BrokerContext
from rotunda.broker.apis.topics.published_offsets import UNKNOWN_EPOCH, published_leader_epoch
from rotunda.broker.errors import ApiError
from rotunda.broker.ipc.request import Request
from rotunda.broker.metadata.metadata_cache import MetadataCache, PartitionInfo, TopicInfo
from rotunda.broker.metadata.topics.topic_validation import check_topic_name
from rotunda.broker.protocol.error_codes import ErrorCode
from rotunda.broker.protocol.sliced_responses import Lazily
from rotunda.broker.scheduling.deferred import Deferred
from rotunda.broker.scheduling.long_responses import at_length, each_of
from rotunda.broker.scheduling.slices import Work
from rotunda.broker.security.acl.acls import CLUSTER_NAME, Operation, ResourceType

#: Most time that a request waits for the topics it creates. The client retries after an error.
AUTO_CREATE_WAIT_MS = 2000

#: A response with more topics or partitions is made in slices: a millisecond.
MOST_TOPICS_AT_ONCE = 100
MOST_PARTITIONS_AT_ONCE = 500

#: Below this version a topic cannot be requested by its id.
_FIRST_WITH_TOPIC_IDS = 12

_NO_ID = bytes(16)


def handle_metadata(request: Request, broker: BrokerContext, body: Any) -> dict[str, Any] | Deferred | Work:
    """Return the response, or a wait for topics being created; a long one is made in slices."""
    if len(body.topics or ()) > MOST_TOPICS_AT_ONCE:
        return _at_length(request, broker, body)
    missing = [name for name in _distinct_names(broker, body) if _is_creatable(request, broker, name)]
    return _response(request, broker, body, missing)


def is_metadata_cacheable(response: dict[str, Any]) -> bool:
    """Return whether a response is valid until the metadata change.

    A leader epoch is constant for a run of the broker, once the partition is open. A request for an unknown topic may
    create it.
    """
    return not any(
        topic["error_code"] or any(partition["leader_epoch"] == UNKNOWN_EPOCH for partition in topic["partitions"])
        for topic in response["topics"]
    )


def _at_length(request: Request, broker: BrokerContext, body: Any) -> Work:
    missing: list[str] = []

    def look_at(name: str) -> None:
        if _is_creatable(request, broker, name):
            missing.append(name)

    yield from each_of(_distinct_names(broker, body), look_at)
    return _response(request, broker, body, missing)


def _response(
    request: Request, broker: BrokerContext, body: Any, missing: list[str]
) -> dict[str, Any] | Deferred | Work:
    if not missing:
        return _described_or_at_length(request, broker, body)
    broker.create_topics(missing)
    metadata = broker.metadata

    def retry(final: bool) -> dict[str, Any] | Work | None:
        while missing and metadata.topic(missing[-1]) is not None:
            missing.pop()
        return _described_or_at_length(request, broker, body) if final or not missing else None

    return Deferred(AUTO_CREATE_WAIT_MS, retry)


def _distinct_names(broker: BrokerContext, body: Any) -> Iterable[str]:
    """Return the requested names, if the request may create topics."""
    allowed = body.allow_auto_topic_creation and broker.metadata.broker_config.auto_create_topics_enable
    if body.topics is None or not allowed:
        return ()
    return dict.fromkeys(topic.name for topic in body.topics if topic.name is not None)


def _is_creatable(request: Request, broker: BrokerContext, name: str) -> bool:
    """Return whether a topic does not exist and the client may create it."""
    metadata = broker.metadata
    return (
        metadata.topic(name) is None
        and not _name_error(name)
        and metadata.colliding(name) is None
        and not broker.access.rejection(request, ResourceType.TOPIC, name)
        and not _creation_error(request, broker, name)
    )


def _creation_error(request: Request, broker: BrokerContext, name: str) -> int:
    """Return the error for a client that may not create a topic by requesting it, or 0."""
    authorizer, session = broker.metadata.authorizer, request.session
    if authorizer is None or authorizer.allows(
        session, Operation.CREATE, ResourceType.CLUSTER, CLUSTER_NAME, is_asked_for=False
    ):
        return 0
    return broker.access.rejection(request, ResourceType.TOPIC, name, Operation.CREATE)


def _name_error(name: str) -> int:
    try:
        check_topic_name(name)
    except ApiError as error:
        return error.code
    return 0


def _described_or_at_length(request: Request, broker: BrokerContext, body: Any) -> dict[str, Any] | Work:
    """Return the response, complete if it is short."""
    asked = _asked(request, broker, body)
    topics = Lazily(asked, lambda each: _topic(request, broker, each, body))
    host, port = broker.address_for(request)
    config = broker.metadata.broker_config
    response = {
        "brokers": [{"node_id": config.node_id, "host": host, "port": port, "rack": config.broker_rack}],
        "cluster_id": broker.cluster_id,
        "controller_id": config.node_id,
        "topics": topics,
        "cluster_authorized_operations": cluster_operations(
            request, broker, body.include_cluster_authorized_operations
        ),
    }
    if _is_short(broker, asked):
        return response | {"topics": [topic | {"partitions": list(topic["partitions"])} for topic in topics]}
    return at_length(response)


def _asked(request: Request, broker: BrokerContext, body: Any) -> Sequence[Any]:
    """Return the requested topics, each once; for a request of all, those that the client may see."""
    if body.topics or (body.topics is not None and request.api_version):
        return list({(each.topic_id, each.name): each for each in body.topics}.values())
    authorizer, topics = broker.metadata.authorizer, broker.metadata.topics()
    if authorizer is None:
        return topics
    may = partial(authorizer.allows, request.session, Operation.DESCRIBE, ResourceType.TOPIC, is_asked_for=False)
    return [topic for topic in topics if may(topic.name)]


def _is_short(broker: BrokerContext, asked: Sequence[Any]) -> bool:
    if len(asked) > MOST_TOPICS_AT_ONCE:
        return False
    metadata, partitions = broker.metadata, 0
    for each in asked:
        topic = each if isinstance(each, TopicInfo) else _find(metadata, each)
        partitions += 0 if topic is None else len(topic.partitions)
    return partitions <= MOST_PARTITIONS_AT_ONCE


def _find(metadata: MetadataCache, asked: Any) -> TopicInfo | None:
    return metadata.topic_by_id(asked.topic_id) if asked.name is None else metadata.topic(asked.name)


def _topic(request: Request, broker: BrokerContext, asked: Any, body: Any) -> dict[str, Any]:
    if isinstance(asked, TopicInfo):
        return _described(request, broker, asked, body)
    return _asked_for(request, broker, asked, body)


def _asked_for(request: Request, broker: BrokerContext, asked: Any, body: Any) -> dict[str, Any]:
    metadata = broker.metadata
    by_id = asked.topic_id != _NO_ID
    if request.api_version < _FIRST_WITH_TOPIC_IDS and (by_id or asked.name is None):
        return _failed(ErrorCode.INVALID_REQUEST, asked.name, asked.topic_id)
    if by_id or asked.name is None:
        topic = metadata.topic_by_id(asked.topic_id)
        error = (
            broker.access.rejection(request, ResourceType.TOPIC, topic.name)
            if topic is not None
            else ErrorCode.UNKNOWN_TOPIC_ID
        )
        if topic is None or error:
            return _failed(error, None, asked.topic_id)
        return _described(request, broker, topic, body)
    if rejection := broker.access.rejection(request, ResourceType.TOPIC, asked.name):
        return _failed(rejection, asked.name)
    topic = metadata.topic(asked.name)
    return _missing(request, broker, asked.name, body) if topic is None else _described(request, broker, topic, body)


def _missing(request: Request, broker: BrokerContext, name: str, body: Any) -> dict[str, Any]:
    """Return the response for an unknown topic."""
    config = broker.metadata.broker_config
    is_to_be_created = body.allow_auto_topic_creation and config.auto_create_topics_enable
    if is_to_be_created and (rejection := _creation_error(request, broker, name)):
        return _failed(rejection, name)
    error = _name_error(name) or int(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    operations = topic_operations(request, broker, name, body.include_topic_authorized_operations)
    return _failed(error, name) | {"topic_authorized_operations": operations}


def _described(request: Request, broker: BrokerContext, topic: TopicInfo, body: Any) -> dict[str, Any]:
    operations = topic_operations(request, broker, topic.name, body.include_topic_authorized_operations)
    node_id = broker.metadata.broker_config.node_id
    nodes = (node_id,)

    def describe(partition: PartitionInfo) -> dict[str, Any]:
        return {
            "partition_index": partition.index,
            "leader_id": node_id,
            "leader_epoch": published_leader_epoch(broker, partition),
            "replica_nodes": nodes,
            "isr_nodes": nodes,
        }

    return {
        "error_code": 0,
        "name": topic.name,
        "topic_id": topic.topic_id,
        "is_internal": topic.internal,
        "partitions": Lazily(topic.partitions, describe),
        "topic_authorized_operations": operations,
    }


def _failed(error: int, name: str | None, topic_id: bytes = _NO_ID) -> dict[str, Any]:
    return {"error_code": error, "name": name, "topic_id": topic_id, "partitions": ()}
