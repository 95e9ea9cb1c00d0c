"""OffsetDelete: single offsets of a group go, unless a member reads the topic (KIP-496)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from broker.coordinator.group_upkeep import delete_offset
from broker.errors import ApiError
from broker.protocol.error_codes import ErrorCode
from broker.server.request_context import Deferred, RequestContext

if TYPE_CHECKING:
    from broker.coordinator.coordinator_log import Record
    from broker.coordinator.group import Group
    from broker.coordinator.group_shard import GroupShard


def handle_offset_delete(context: RequestContext, request: Any) -> dict[str, Any] | Deferred:
    """Return an error for each partition, once the others are deleted; or one for the group."""
    group_id = request.group_id
    if not group_id:
        return _response(ErrorCode.INVALID_GROUP_ID)
    try:
        shard = context.broker.coordinators.groups.shard_of(group_id)
    except ApiError as failure:
        return _response(failure.code)
    group = shard.groups.get(group_id)
    error = int(ErrorCode.GROUP_ID_NOT_FOUND) if group is None else group.validate_offset_delete()
    if group is None or error:
        return _response(error)
    records: list[Record] = []
    topics = [_delete(context, shard, group, topic, records) for topic in request.topics]
    if not records:
        return _response(0, topics)
    deferred = Deferred()
    shard.append(records, lambda error: deferred.complete(_response(error, [] if error else topics)))
    return deferred


def _delete(
    context: RequestContext, shard: GroupShard, group: Group, topic: Any, records: list[Record]
) -> dict[str, Any]:
    found = context.broker.metadata.topic(topic.name)
    partitions = 0 if found is None else len(found.partitions)
    error = int(ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC) if group.is_subscribed(topic.name) else 0
    known = set() if error else shard.offsets.keys_of(group.group_id)
    answers = []
    for index in [each.partition_index for each in topic.partitions]:
        is_there = 0 <= index < partitions
        if is_there and (topic.name, index) in known:
            records.append(delete_offset(shard, group.group_id, topic.name, index))
        code = error if is_there else int(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        answers.append({"partition_index": index, "error_code": code})
    return {"name": topic.name, "partitions": answers}


def _response(error: int, topics: list[dict[str, Any]] | None = None) -> dict[str, Any]:
    return {"error_code": error, "throttle_time_ms": 0, "topics": topics or []}
