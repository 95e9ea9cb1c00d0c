"""TxnOffsetCommit: offsets that count when the producer's transaction is committed (KIP-98, KIP-447, KIP-890, I28)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from rotunda.broker.apis.context import BrokerContext
from rotunda.broker.apis.groups.offset_commit import is_long, merge_topics, portions_of
from rotunda.broker.apis.transactions.transaction_errors import for_offsets
from rotunda.broker.coordinator.offsets.commits import Committer, CommitTime, drop_unused, take_commit, validate_commit
from rotunda.broker.errors import ApiError
from rotunda.broker.ipc.request import Request
from rotunda.broker.partitions.transaction_messages import Membership, Producer
from rotunda.broker.protocol.coordinator_routing import GROUP_TOPIC
from rotunda.broker.protocol.error_codes import ErrorCode
from rotunda.broker.scheduling.deferred import Deferred
from rotunda.broker.scheduling.following import after
from rotunda.broker.scheduling.slices import Work
from rotunda.broker.security.acl.acls import ResourceType

if TYPE_CHECKING:
    from rotunda.broker.coordinator.records import Record

#: From this version on the first commit adds the partition to the transaction.
_ADDED_FROM = 5


def handle_txn_offset_commit(request: Request, broker: BrokerContext, body: Any) -> dict[str, Any] | Deferred | Work:
    """Return an error for each partition, once the valid offsets are committed as part of the transaction."""
    if broker.metadata.authorizer is not None:
        return _authorized(request, broker, body)
    return _taken(request, broker, body)


def _authorized(request: Request, broker: BrokerContext, body: Any) -> dict[str, Any] | Deferred | Work:
    """Commit the offsets that the client is authorized for, and reject the others."""
    answers, taken = [], []
    for topic in body.topics:
        error = broker.access.refusal(request, ResourceType.TOPIC, topic.name)
        if not error:
            taken.append(topic)
        elif topic.partitions:
            answers.append(_topic(topic.name, [(each.partition_index, error) for each in topic.partitions]))
    if not taken:
        return {"topics": answers}
    response = _taken(request, broker, body.replaced(topics=tuple(taken)))
    return after(response, lambda answer: {"topics": [*answer["topics"], *answers]})  # type: ignore[no-any-return]


def _taken(request: Request, broker: BrokerContext, body: Any) -> dict[str, Any] | Deferred | Work:
    return _in_portions(request, broker, body) if is_long(body.topics) else _at_once(request, broker, body)


def _in_portions(request: Request, broker: BrokerContext, body: Any) -> Work:
    """Commit in portions: each is a part of the transaction, or fails by itself."""
    merged: list[dict[str, Any]] = []
    for topics in portions_of(body.topics):
        answer = _at_once(request, broker, body.replaced(topics=topics))
        response = (yield answer) if isinstance(answer, Deferred) else answer
        merge_topics(merged, response["topics"])
        yield None
    return {"topics": merged}


def _at_once(request: Request, broker: BrokerContext, body: Any) -> dict[str, Any] | Deferred:
    if not any(_is_there(broker, topic.name, each) for topic in body.topics for each in topic.partitions):
        return _refused(broker, body, 0)
    if not body.group_id:
        return _refused(broker, body, ErrorCode.INVALID_GROUP_ID)
    try:
        shard = broker.coordinators.groups.shard_of(body.group_id)
    except ApiError as failure:
        return _refused(broker, body, failure.code)
    deferred = Deferred()

    def verified(errors: Sequence[int]) -> None:
        error = next((error for error in errors if error), 0)
        if error:
            deferred.complete(_refused(broker, body, for_offsets(error, request)))
        else:
            _commit(request, broker, body, deferred)

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
        broker.coordinators.transaction_rpc.ask_membership(membership, verified)
    return deferred


def _commit(request: Request, broker: BrokerContext, body: Any, deferred: Deferred) -> None:
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
        error = validate_commit(shard, committer)
    except ApiError as failure:
        error = failure.code
    if error:
        deferred.complete(
            _refused(broker, body, ErrorCode.ILLEGAL_GENERATION if error == ErrorCode.STALE_MEMBER_EPOCH else error)
        )
        return
    time = CommitTime(broker.clock.wall_ms(), most_metadata=broker.metadata.broker_config.offset_metadata_max_bytes)
    records: list[Record] = []
    topics = []
    for asked in body.topics:
        topic = broker.metadata.topic(asked.name)
        place = (asked.name, bytes(16), 0) if topic is None else (topic.name, topic.topic_id, len(topic.partitions))
        if asked.partitions:
            answers, _ = take_commit(shard, group_id, place, asked.partitions, time, records, body.producer_id)
            topics.append({"name": asked.name, "partitions": answers})
    response = {"topics": topics}
    if not records:
        drop_unused(shard, group_id)
        deferred.complete(response)
        return
    producer = (body.producer_id, body.producer_epoch)
    shard.append(
        records,
        lambda error: deferred.complete(_refused(broker, body, error) if error else response),
        producer,
    )


def _is_there(broker: BrokerContext, topic: str, each: Any) -> bool:
    return broker.metadata.partition(topic, each.partition_index) is not None


def _refused(broker: BrokerContext, body: Any, error: int) -> dict[str, Any]:
    """Return a response with the error, except for unknown partitions, which have their own."""
    topics = []
    for topic in body.topics:
        parts = [
            (
                each.partition_index,
                int(error if _is_there(broker, topic.name, each) else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
            )
            for each in topic.partitions
        ]
        if parts:
            topics.append(_topic(topic.name, parts))
    return {"topics": topics}


def _topic(name: str, parts: Sequence[tuple[int, int]]) -> dict[str, Any]:
    return {"name": name, "partitions": [{"partition_index": index, "error_code": error} for index, error in parts]}
