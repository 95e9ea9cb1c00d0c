"""OffsetDelete: deletes single offsets of a group, unless a member reads the topic (KIP-496, I47)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from rotunda.broker.apis.context import BrokerContext
from rotunda.broker.coordinator.offsets.offset_expiration import delete_offset
from rotunda.broker.errors import ApiError
from rotunda.broker.ipc.request import Request
from rotunda.broker.protocol.error_codes import ErrorCode
from rotunda.broker.protocol.sliced_responses import Lazily
from rotunda.broker.scheduling.deferred import Deferred
from rotunda.broker.scheduling.slices import Work
from rotunda.broker.security.acl.acls import ResourceType

if TYPE_CHECKING:
    from rotunda.broker.coordinator.group import Group
    from rotunda.broker.coordinator.group_shard import GroupShard
    from rotunda.broker.coordinator.records import Record

#: Offsets deleted between two yields.
_AT_ONCE = 128


def handle_offset_delete(request: Request, broker: BrokerContext, body: Any) -> dict[str, Any] | Work:
    """Return an error for each partition, once the others are deleted; or one for the group."""
    group_id = body.group_id
    if body.topics and all(broker.access.rejection(request, ResourceType.TOPIC, topic.name) for topic in body.topics):
        return _response(0, [_rejected(request, broker, topic) for topic in body.topics])
    if not group_id:
        return _response(ErrorCode.INVALID_GROUP_ID)
    try:
        shard = broker.coordinators.groups.shard_of(group_id)
    except ApiError as failure:
        return _response(failure.code)
    group = shard.groups.get(group_id)
    error = int(ErrorCode.GROUP_ID_NOT_FOUND) if group is None else group.validate_offset_delete()
    if group is None or error:
        return _response(error)
    return _delete(request, broker, shard, group, body.topics)


def _delete(request: Request, broker: BrokerContext, shard: GroupShard, group: Group, asked: Sequence[Any]) -> Work:
    """Delete the permitted offsets in slices; each slice stages the records of its deletions."""
    known = shard.offsets.keys_of(group.group_id)
    errors: dict[str, dict[int, int]] = {}
    commits: list[Deferred] = []
    for topic in asked:
        rejection = broker.access.rejection(request, ResourceType.TOPIC, topic.name)
        found = broker.metadata.topic(topic.name)
        partitions = 0 if found is None else len(found.partitions)
        error = int(ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC) if group.is_subscribed(topic.name) else 0
        codes = errors.setdefault(topic.name, {})
        indexes = [each.partition_index for each in topic.partitions]
        for start in range(0, len(indexes), _AT_ONCE):
            records: list[Record] = []
            for index in indexes[start : start + _AT_ONCE]:
                is_there = 0 <= index < partitions
                if is_there and not (error or rejection) and (topic.name, index) in known:
                    known.discard((topic.name, index))
                    records.append(delete_offset(shard, group.group_id, topic.name, index))
                codes[index] = (
                    rejection or error if rejection or is_there else int(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
                )
            if records:
                committed = Deferred()
                shard.append(records, committed.complete)
                commits.append(committed)
            yield None
    failed = 0
    for committed in commits:
        failed = (yield committed) or failed
    topics = [
        {
            "name": name,
            "partitions": Lazily(list(codes.items()), lambda each: {"partition_index": each[0], "error_code": each[1]}),
        }
        for name, codes in errors.items()
    ]
    return _response(failed, [] if failed else topics)


def _rejected(request: Request, broker: BrokerContext, topic: Any) -> dict[str, Any]:
    error = broker.access.rejection(request, ResourceType.TOPIC, topic.name)
    indexes = [each.partition_index for each in topic.partitions]
    return {
        "name": topic.name,
        "partitions": Lazily(indexes, lambda index: {"partition_index": index, "error_code": error}),
    }


def _response(error: int, topics: list[dict[str, Any]] | None = None) -> dict[str, Any]:
    return {"error_code": error, "topics": topics or []}
