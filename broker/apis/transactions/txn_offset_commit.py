"""TxnOffsetCommit: offsets that count when the producer's transaction is committed (KIP-98, KIP-447, KIP-890, I28)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final

from rotunda.broker.apis.context import BrokerContext
from rotunda.broker.apis.groups.offset_commit import committer_of, is_long, merge_topics, portions_of
from rotunda.broker.apis.transactions.transaction_errors import for_offsets
from rotunda.broker.coordinator.offsets.commits import (
    commit_offsets,
    existing_partitions,
    find_topic,
    rejected_commit,
    rejected_topic,
)
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
    from rotunda.broker.coordinator.group import Committer

#: From this version on the first commit adds the partition to the transaction.
_ADDED_FROM: Final = 5


def handle_txn_offset_commit(request: Request, broker: BrokerContext, body: Any) -> dict[str, Any] | Deferred | Work:
    """Return an error for each partition, once the valid offsets are committed as part of the transaction."""
    if broker.metadata.authorizer is not None:
        return _authorized(request, broker, body)
    return _commit(request, broker, body)


def _authorized(request: Request, broker: BrokerContext, body: Any) -> dict[str, Any] | Deferred | Work:
    """Commit the offsets that the client is authorized for, and reject the others."""
    rejections, accepted = [], []
    committer = _committer(request, body)
    for asked in body.topics:
        topic = find_topic(broker.metadata, committer, asked)
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
    committer = _committer(request, body)

    def reject(error: int) -> dict[str, Any]:
        return rejected_commit(broker.metadata, committer, body.topics, error).response

    if not any(existing_partitions(broker.metadata, committer, body.topics)):
        return reject(0)
    if not body.group_id:
        return reject(ErrorCode.INVALID_GROUP_ID)
    try:
        shard = broker.coordinators.groups.shard_of(body.group_id)
    except ApiError as failure:
        return reject(failure.code)
    deferred = Deferred()

    def verified(errors: Sequence[int]) -> None:
        error = next((error for error in errors if error), 0)
        if error:
            deferred.complete(reject(for_offsets(error, request)))
            return
        # The partition is part of the transaction.
        commit = commit_offsets(broker.coordinators.groups, committer, body.topics, producer_id=body.producer_id)
        if commit.shard is None or not commit.records:
            deferred.complete(commit.response)
            return
        done = lambda error: deferred.complete(reject(error) if error else commit.response)  # noqa: E731
        commit.shard.append(commit.records, done, (body.producer_id, body.producer_epoch))

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


def _committer(request: Request, body: Any) -> Committer:
    """Return the committer in a request."""
    return committer_of(body, request.api_version, transactional=True)
