"""AlterShareGroupOffsets and DeleteShareGroupOffsets (KIP-932): reset a share group, or let it forget topics."""

from __future__ import annotations

from typing import Any

from rotunda.broker.apis.context import BrokerContext
from rotunda.broker.apis.groups.share_group_heartbeat import require_share_groups
from rotunda.broker.coordinator.group_shard import GroupShard
from rotunda.broker.coordinator.share.group import ShareGroup
from rotunda.broker.errors import ApiError
from rotunda.broker.ipc.request import Request
from rotunda.broker.protocol.error_codes import ErrorCode, text_of
from rotunda.broker.protocol.sliced_responses import Lazily
from rotunda.broker.scheduling.deferred import Deferred
from rotunda.broker.scheduling.slices import Work
from rotunda.broker.security.acl.acls import ResourceType


def handle_alter_share_group_offsets(request: Request, broker: BrokerContext, body: Any) -> dict[str, Any] | Work:
    """Return an error for each partition, once the start offsets of the others are set.

    The first of them creates the group.
    """
    try:
        _empty_group(request, broker, body)
    except ApiError as error:
        return _rejected(error)
    return _alter(request, broker, body)


def handle_delete_share_group_offsets(request: Request, broker: BrokerContext, body: Any) -> dict[str, Any] | Work:
    """Return an error for each topic, once the state of the others is deleted."""
    try:
        shard, group = _empty_group(request, broker, body)
        if group is None:
            raise ApiError(ErrorCode.GROUP_ID_NOT_FOUND, f"Group {body.group_id} not found.")
    except ApiError as error:
        return _rejected(error)
    return _delete(request, broker, body, (shard, group))


def _empty_group(request: Request, broker: BrokerContext, body: Any) -> tuple[GroupShard, ShareGroup | None]:
    """Return the group of a request, None if there is none. Raises ApiError, also for a group with members."""
    require_share_groups(broker)
    if rejection := broker.access.rejection(request, ResourceType.GROUP, body.group_id):
        raise ApiError(rejection)
    if not body.group_id:
        raise ApiError(ErrorCode.INVALID_GROUP_ID)
    shard = broker.coordinators.groups.shard_of(body.group_id)
    group = shard.groups.get(body.group_id)
    if group is not None and not isinstance(group, ShareGroup):
        raise ApiError(ErrorCode.GROUP_ID_NOT_FOUND, f"Group {body.group_id} is not a share group.")
    if group is not None and group.members:
        raise ApiError(ErrorCode.NON_EMPTY_GROUP)
    return shard, group


def _alter(request: Request, broker: BrokerContext, body: Any) -> Work:
    responses = []
    for asked in body.topics:
        topic = broker.metadata.topic(asked.topic_name)
        error = broker.access.rejection(request, ResourceType.TOPIC, asked.topic_name)
        count = 0 if topic is None else len(topic.partitions)
        valid = {each.partition_index: each.start_offset for each in asked.partitions} if not error else {}
        valid = {index: max(offset, -1) for index, offset in valid.items() if 0 <= index < count}
        outcome = 0
        if valid and topic is not None:
            reset = Deferred()
            try:
                # Again: others may have joined meanwhile.
                shard, group = _empty_group(request, broker, body)
            except ApiError as failure:
                reset.complete(failure.code)
            else:
                if group is None:
                    group = shard.groups[body.group_id] = ShareGroup(body.group_id)
                broker.coordinators.groups.shares.states.reset(shard, group, topic.topic_id, valid, reset.complete)
            outcome = yield reset
        missing = int(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        responses.append(
            {
                "topic_name": asked.topic_name,
                "topic_id": bytes(16) if topic is None or error else topic.topic_id,
                "partitions": [
                    {
                        "partition_index": each.partition_index,
                        **_error(error or (outcome if each.partition_index in valid else missing)),
                    }
                    for each in asked.partitions
                ],
            }
        )
        yield None
    return {"error_code": 0, "responses": responses}


def _delete(request: Request, broker: BrokerContext, body: Any, place: tuple[GroupShard, ShareGroup]) -> Work:
    errors: dict[str, int] = {}
    topic_ids: dict[str, bytes] = {}
    shard, group = place
    for asked in body.topics:
        yield None
        name = asked.topic_name
        topic = broker.metadata.topic(name)
        errors[name] = broker.access.rejection(request, ResourceType.TOPIC, name)
        if errors[name]:
            continue
        if topic is None or not group.has_state(topic.topic_id):
            errors[name] = int(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        else:
            topic_ids[name] = topic.topic_id
    if topic_ids:
        deleted = Deferred()
        broker.coordinators.groups.shares.states.delete(shard, group, topic_ids.values(), deleted.complete)
        error = yield deleted
        errors.update((name, error) for name in topic_ids)
    responses = Lazily(
        list(errors.items()),
        lambda each: {"topic_name": each[0], "topic_id": topic_ids.get(each[0], bytes(16)), **_error(each[1])},
    )
    return {"error_code": 0, "responses": responses}


def _rejected(error: ApiError) -> dict[str, Any]:
    return {"error_code": error.code, "error_message": error.message or text_of(error.code), "responses": []}


def _error(code: int) -> dict[str, Any]:
    return {"error_code": code, "error_message": text_of(code) if code else None}
