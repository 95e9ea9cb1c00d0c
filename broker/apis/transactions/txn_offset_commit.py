"""TxnOffsetCommit: offsets that count when the producer's transaction is committed (KIP-98, KIP-447, KIP-890, I28)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final

from rotunda.broker.apis.context import BrokerContext
from rotunda.broker.apis.groups.offset_commit import (
    existing_partitions,
    find_topic,
    is_long,
    merge_topics,
    portions_of,
    rejected_commit,
    rejected_topic,
)
from rotunda.broker.apis.transactions.transaction_errors import for_offsets
from rotunda.broker.coordinator.offsets.commits import Committer, CommitTime, apply_commit, drop_unused, validate_commit
from rotunda.broker.errors import ApiError
from rotunda.broker.ipc.request import Request
from rotunda.broker.partitions.transaction_messages import Membership, Producer
from rotunda.broker.protocol.error_codes import ErrorCode
from rotunda.broker.protocol.routing import GROUP_TOPIC
from rotunda.broker.scheduling.deferred import Deferred
from rotunda.broker.scheduling.following import after
from rotunda.broker.scheduling.slices import Work
from rotunda.broker.security.acl.acls import ResourceType

if TYPE_CHECKING:
    from rotunda.broker.coordinator.records import Record
    from rotunda.broker.metadata.metadata_cache import TopicInfo

#: From this version on the first commit adds the partition to the transaction.
_ADDED_FROM: Final = 5
#: From this version on topics have ids instead of names (KIP-1319), and clients know STALE_MEMBER_EPOCH.
_TOPIC_ID_FROM: Final = 6


def handle_txn_offset_commit(request: Request, broker: BrokerContext, body: Any) -> dict[str, Any] | Deferred | Work:
    """Return an error for each partition, once the valid offsets are committed as part of the transaction."""
    if broker.metadata.authorizer is not None:
        return _authorized(request, broker, body)
    return _commit(request, broker, body)


def _authorized(request: Request, broker: BrokerContext, body: Any) -> dict[str, Any] | Deferred | Work:
    """Commit the offsets that the client is authorized for, and reject the others."""
    rejections, accepted = [], []
    for asked in body.topics:
        topic = _find(request, broker, asked)
        # Unknown ids are rejected later.
        name = asked.name if topic is None else topic.name
        error = broker.access.rejection(request, ResourceType.TOPIC, name) if name else 0
        if not error:
            accepted.append(asked)
        elif asked.partitions:
            rejections.append(rejected_topic(asked, error))
    if not accepted:
        return {"topics": rejections}
    response = _commit(request, broker, body.replaced(topics=tuple(accepted)))
    return after(response, lambda response: {"topics": [*response["topics"], *rejections]})  # type: ignore[no-any-return]


def _commit(request: Request, broker: BrokerContext, body: Any) -> dict[str, Any] | Deferred | Work:
    return _in_portions(request, broker, body) if is_long(body.topics) else _at_once(request, broker, body)


def _in_portions(request: Request, broker: BrokerContext, body: Any) -> Work:
    """Commit in portions: each is a part of the transaction, or fails by itself."""
    merged: list[dict[str, Any]] = []
    for topics in portions_of(body.topics):
        outcome = _at_once(request, broker, body.replaced(topics=topics))
        response = (yield outcome) if isinstance(outcome, Deferred) else outcome
        merge_topics(merged, response["topics"])
        yield None
    return {"topics": merged}


def _at_once(request: Request, broker: BrokerContext, body: Any) -> dict[str, Any] | Deferred:
    if not any(existing_partitions(broker, body.topics, by_id=_is_by_id(request))):
        return _rejected(request, broker, body, 0)
    if not body.group_id:
        return _rejected(request, broker, body, ErrorCode.INVALID_GROUP_ID)
    try:
        shard = broker.coordinators.groups.shard_of(body.group_id)
    except ApiError as failure:
        return _rejected(request, broker, body, failure.code)
    deferred = Deferred()

    def verified(errors: Sequence[int]) -> None:
        error = next((error for error in errors if error), 0)
        if error:
            deferred.complete(_rejected(request, broker, body, for_offsets(error, request)))
        else:
            _commit_verified(request, broker, body, deferred)

    owned = broker.partitions.own(GROUP_TOPIC, shard.partition)
    if owned is not None and owned.log.ongoing_transaction(body.producer_id, body.producer_epoch):
        verified((0,))
    elif owned is not None and owned.log.is_fenced(body.producer_id, body.producer_epoch):
        verified((ErrorCode.INVALID_PRODUCER_EPOCH,))
    else:
        producer = Producer(body.producer_id, body.producer_epoch)
        verify_only = request.api_version < _ADDED_FROM
        place = (GROUP_TOPIC, shard.partition)
        membership = Membership(body.transactional_id, producer, verify_only, [place])
        broker.coordinators.transaction_rpc.verify_membership(membership, verified)
    return deferred


def _commit_verified(request: Request, broker: BrokerContext, body: Any, deferred: Deferred) -> None:
    """Commit the offsets: the partition is part of the transaction."""
    group_id = body.group_id
    committer = Committer(
        group_id,
        body.member_id,
        body.group_instance_id,
        body.generation_id_or_member_epoch,
        request.api_version,
        transactional=True,
    )
    try:
        shard = broker.coordinators.groups.shard_of(group_id)
        error = validate_commit(
            shard, committer, lambda: existing_partitions(broker, body.topics, by_id=_is_by_id(request))
        )
    except ApiError as failure:
        error = failure.code
    if error:
        if error == ErrorCode.STALE_MEMBER_EPOCH and not _is_by_id(request):
            error = ErrorCode.ILLEGAL_GENERATION
        deferred.complete(_rejected(request, broker, body, error))
        return
    time = CommitTime(broker.clock.wall_ms(), most_metadata=broker.metadata.broker_config.offset_metadata_max_bytes)
    records: list[Record] = []
    topics = []
    for asked in body.topics:
        topic = _find(request, broker, asked)
        if topic is None and asked.partitions:
            error = ErrorCode.UNKNOWN_TOPIC_ID if _is_by_id(request) else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            topics.append(rejected_topic(asked, error))
        elif topic is not None and asked.partitions:
            place = (topic.name, topic.topic_id, len(topic.partitions))
            partition_responses, _ = apply_commit(
                shard, group_id, place, asked.partitions, time, records, body.producer_id
            )
            topics.append({"name": asked.name, "topic_id": asked.topic_id, "partitions": partition_responses})
    response = {"topics": topics}
    if not records:
        drop_unused(shard, group_id)
        deferred.complete(response)
        return
    producer = (body.producer_id, body.producer_epoch)
    shard.append(
        records,
        lambda error: deferred.complete(_rejected(request, broker, body, error) if error else response),
        producer,
    )


def _is_by_id(request: Request) -> bool:
    return request.api_version >= _TOPIC_ID_FROM


def _find(request: Request, broker: BrokerContext, asked: Any) -> TopicInfo | None:
    return find_topic(broker, asked, by_id=_is_by_id(request))


def _rejected(request: Request, broker: BrokerContext, body: Any, error: int) -> dict[str, Any]:
    """Return a response with the error, except for unknown topics and partitions, which have their own."""
    return rejected_commit(broker, body.topics, error, by_id=_is_by_id(request)).response
