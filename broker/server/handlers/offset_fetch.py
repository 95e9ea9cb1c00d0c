"""OffsetFetch: how far groups have read. Several groups at a time from version 8 on, topics by id from 10 on."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any, NamedTuple

from broker.coordinator.offsets import CommittedOffset
from broker.errors import ApiError
from broker.protocol.error_codes import ErrorCode
from broker.protocol.kio_adapter import uuid_bytes
from broker.server.handlers.group_calls import GroupAnswer, MultiGroupApi, call_owners
from broker.server.request_context import Deferred, RequestContext

if TYPE_CHECKING:
    from broker.coordinator.group_shard import GroupShard

_BATCHED_FROM = 8
_GROUP_ERROR_FROM = 2
_TOPIC_ID_FROM = 10


#: Takes the error and the topics of one group.
_FetchAnswer = Callable[[int, list[dict[str, Any]]], None]


class _Query(NamedTuple):
    """One group of a request: with ``require_stable``, offsets that a transaction may change are not told."""

    context: RequestContext
    shard: GroupShard
    group_id: str
    require_stable: bool


def handle_offset_fetch(context: RequestContext, request: Any) -> dict[str, Any] | Deferred:
    """Return the committed offset of each partition asked for, -1 where there is none; null asks for all."""
    if context.api_version >= _BATCHED_FROM:
        return call_owners(context, request, OFFSET_FETCH)
    deferred = Deferred()

    def answer(error: int, topics: list[dict[str, Any]]) -> None:
        if error and context.api_version < _GROUP_ERROR_FROM:
            topics = [_failed(each, error) for each in request.topics]
        deferred.complete({"throttle_time_ms": 0, "error_code": error, "topics": topics})

    _fetch(context, request, getattr(request, "require_stable", False), answer)
    return deferred


def _answer_group(context: RequestContext, request: Any, group: Any, answer: GroupAnswer) -> None:
    def answer_group(error: int, topics: list[dict[str, Any]]) -> None:
        answer({"group_id": group.group_id, "error_code": error, "topics": topics})

    _fetch(context, group, request.require_stable, answer_group)


def _fetch(context: RequestContext, asked: Any, require_stable: bool, answer: _FetchAnswer) -> None:
    """Answer with (error, topics) for one group, once the offsets that are told are committed."""
    group_id = asked.group_id
    try:
        shard = context.broker.coordinators.groups.shard_of(group_id)
    except ApiError as failure:
        answer(failure.code, [])
        return
    group = shard.groups.get(group_id)
    if group is not None:
        error = group.validate_offset_fetch(getattr(asked, "member_id", None), getattr(asked, "member_epoch", -1))
        if error:
            answer(error, [])
            return
    query = _Query(context, shard, group_id, require_stable)
    topics = _all(query) if asked.topics is None else [_topic(query, each) for each in asked.topics]
    shard.when_committed(lambda error: answer(error, [] if error else topics))


def _all(query: _Query) -> list[dict[str, Any]]:
    by_id = query.context.api_version >= _TOPIC_ID_FROM
    topics = []
    for name, offsets in query.shard.offsets.of_group(query.group_id).items():
        topic = query.context.broker.metadata.topic(name) if by_id else None
        if by_id and topic is None:
            continue
        place = {"name": name, "topic_id": bytes(16) if topic is None else topic.topic_id}
        topics.append({**place, "partitions": _partitions(query, name, offsets, offsets)})
    return topics


def _topic(query: _Query, asked: Any) -> dict[str, Any]:
    if query.context.api_version < _TOPIC_ID_FROM:
        name = asked.name
    else:
        topic = query.context.broker.metadata.topic_by_id(uuid_bytes(asked.topic_id))
        if topic is None:
            return _failed(asked, ErrorCode.UNKNOWN_TOPIC_ID)
        name = topic.name
    offsets = query.shard.offsets.of_group(query.group_id).get(name, {})
    return {**_place(asked), "partitions": _partitions(query, name, asked.partition_indexes, offsets)}


def _place(asked: Any) -> dict[str, Any]:
    return {"name": getattr(asked, "name", ""), "topic_id": getattr(asked, "topic_id", None)}


def _partitions(
    query: _Query, topic: str, indexes: Iterable[int], offsets: dict[int, CommittedOffset]
) -> list[dict[str, Any]]:
    store = query.shard.offsets
    return [
        _partition(index, ErrorCode.UNSTABLE_OFFSET_COMMIT)
        if query.require_stable and store.is_pending(query.group_id, topic, index)
        else _partition(index, 0, offsets.get(index))
        for index in indexes
    ]


def _partition(index: int, error: int, committed: CommittedOffset | None = None) -> dict[str, Any]:
    return {
        "partition_index": index,
        "committed_offset": -1 if committed is None else committed.offset,
        "committed_leader_epoch": -1 if committed is None else committed.leader_epoch,
        "metadata": "" if committed is None else committed.metadata,
        "error_code": error,
    }


def _failed(asked: Any, error: int) -> dict[str, Any]:
    return {**_place(asked), "partitions": [_partition(index, error) for index in asked.partition_indexes]}


def _group_failed(context: RequestContext, request: Any, group: Any, error: int) -> dict[str, Any]:
    del context, request
    return {"group_id": group.group_id, "error_code": error, "topics": []}


OFFSET_FETCH = MultiGroupApi("groups", "groups", lambda group: group.group_id, _answer_group, _group_failed)
