"""The heartbeats of KIP-848 groups: their validation, their fields, and whether the response has the assignment.

Pure. The effects of a heartbeat on its group are in `update`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from rotunda.broker.coordinator.consumer.assignment import Assignment
from rotunda.broker.coordinator.consumer.group import ConsumerGroup
from rotunda.broker.coordinator.consumer.member import (
    JOIN_EPOCH,
    LEAVE_EPOCH,
    LEAVE_STATIC_EPOCH,
    ConsumerGroupMember,
)
from rotunda.broker.coordinator.group_memory import GROUP_BYTES, MEMBER_BYTES, texts_bytes
from rotunda.broker.errors import ApiError
from rotunda.broker.metadata.topics.topic_regex import InvalidPatternError, compiled
from rotunda.broker.protocol.error_codes import ErrorCode

if TYPE_CHECKING:
    from rotunda.broker.security.session import Session

#: From this version on, the member generates its id (KIP-1082); before, the coordinator does.
MEMBER_ID_FROM_CLIENT: Final = 1

NO_INDEXES: Final = frozenset[int]()


class Client(NamedTuple):
    """The client that sent a request."""

    client_id: str
    host: str
    session: Session | None = None
    """Its user and address, for the topics it may describe; None without an authorizer."""


def validate(request: Any, api_version: int, assignors: Sequence[str]) -> None:
    """Raise ApiError for a request that is invalid on its own."""
    _require(_has_text(request.group_id), "GroupId can't be empty.")
    _require(request.instance_id is None or _has_text(request.instance_id), "InstanceId can't be empty.")
    _require(request.rack_id is None or _has_text(request.rack_id), "RackId can't be empty.")
    _require(request.member_epoch >= LEAVE_STATIC_EPOCH, "MemberEpoch is invalid.")
    if api_version >= MEMBER_ID_FROM_CLIENT or request.member_epoch != JOIN_EPOCH:
        _require(_has_text(request.member_id), "MemberId can't be empty.")
    if request.member_epoch == LEAVE_STATIC_EPOCH:
        _require(request.instance_id is not None, "InstanceId can't be null.")
    if request.member_epoch == JOIN_EPOCH:
        _validate_join(request)
    if request.server_assignor is not None and request.server_assignor not in assignors:
        raise ApiError(
            ErrorCode.UNSUPPORTED_ASSIGNOR,
            f"ServerAssignor {request.server_assignor} is not supported. Supported assignors: {', '.join(assignors)}.",
        )
    if request.subscribed_topic_regex:
        _validate_regex(request.subscribed_topic_regex)


def _validate_join(request: Any) -> None:
    _require(request.rebalance_timeout_ms != -1, "RebalanceTimeoutMs must be provided in first request.")
    _require(
        request.topic_partitions is not None and not owned_partitions(request),
        "TopicPartitions must be empty when (re-)joining.",
    )
    _require(
        request.subscribed_topic_names is not None or request.subscribed_topic_regex is not None,
        "Either SubscribedTopicNames or SubscribedTopicRegex must be non-null when (re-)joining.",
    )


def static_member(group: ConsumerGroup, request: Any) -> ConsumerGroupMember:
    """Return the member with the request's instance id. Raises ApiError if it is unknown or another member."""
    member = group.members.get(group.static_members.get(request.instance_id or "", ""))
    if member is None:
        raise ApiError(ErrorCode.UNKNOWN_MEMBER_ID, f"Instance id {request.instance_id} is unknown.")
    if member.member_id != request.member_id:
        raise ApiError(
            ErrorCode.FENCED_INSTANCE_ID,
            f"Static member {request.member_id} with instance id {request.instance_id} was fenced by member "
            f"{member.member_id}.",
        )
    return member


def dynamic_member(group: ConsumerGroup, member_id: str) -> ConsumerGroupMember:
    """Return the member of that id. Raises ApiError UNKNOWN_MEMBER_ID."""
    member = group.members.get(member_id)
    if member is None:
        raise ApiError(ErrorCode.UNKNOWN_MEMBER_ID, f"Member {member_id} is not a member of group {group.group_id}.")
    return member


def owned_partitions(request: Any) -> Assignment | None:
    """Return the member's owned partitions by topic id; None if not reported. A topic may be listed twice."""
    if request.topic_partitions is None:
        return None
    found: dict[bytes, frozenset[int]] = {}
    for topic in request.topic_partitions:
        if topic.partitions:
            found[topic.topic_id] = found.get(topic.topic_id, NO_INDEXES).union(topic.partitions)
    return found


def assignment_fields(assignment: Assignment) -> dict[str, Any]:
    topics = [{"topic_id": topic_id, "partitions": sorted(indexes)} for topic_id, indexes in assignment.items()]
    return {"topic_partitions": topics}


def reports_nothing(request: Any) -> bool:
    """Return whether a request has only the member and its epoch."""
    return (
        request.rebalance_timeout_ms == -1
        and request.topic_partitions is None
        and request.subscribed_topic_names is None
        and request.subscribed_topic_regex is None
        and request.server_assignor is None
        and request.rack_id is None
    )


def check_epoch(member: ConsumerGroupMember, request: Any) -> None:
    """Raise ApiError FENCED_MEMBER_EPOCH for an epoch that is neither the member's nor the previous one.

    A member that did not receive its current epoch sends the previous one again, as does a request repeated to the
    replacement of a handler that died between its commit and its response.
    """
    epoch = request.member_epoch
    if epoch == member.epoch:
        return
    if member.previous_epoch == epoch < member.epoch and member.knows_only_its_own(owned_partitions(request)):
        return
    relation = "greater" if epoch > member.epoch else "smaller"
    raise ApiError(
        ErrorCode.FENCED_MEMBER_EPOCH,
        f"The consumer group member has a {relation} member epoch ({epoch}) than the one known by the group "
        f"coordinator ({member.epoch}). The member must abandon all its partitions and rejoin.",
    )


def wants_assignment(request: Any, before: ConsumerGroupMember, after: ConsumerGroupMember) -> bool:
    """Return whether the response has the member's assignment: it has changed, or the request has all fields."""
    is_full = (
        request.rebalance_timeout_ms != -1
        and (request.subscribed_topic_names is not None or request.subscribed_topic_regex is not None)
        and request.topic_partitions is not None
    )
    is_older_epoch = request.member_epoch != before.epoch
    return request.member_epoch == JOIN_EPOCH or is_full or is_older_epoch or before.assigned != after.assigned


def updated_member(member: ConsumerGroupMember, request: Any, client: Client) -> ConsumerGroupMember:
    """Return a member updated from a request; fields without a value stay."""
    fields = {
        "instance_id": request.instance_id,
        "rack_id": request.rack_id,
        "rebalance_timeout_ms": None if request.rebalance_timeout_ms == -1 else request.rebalance_timeout_ms,
        "topic_names": None if request.subscribed_topic_names is None else frozenset(request.subscribed_topic_names),
        "topic_regex": request.subscribed_topic_regex,
        "server_assignor": request.server_assignor,
        "client_id": client.client_id,
        "client_host": client.host,
    }
    news: dict[str, Any] = {name: value for name, value in fields.items() if value is not None}
    return replace(member, classic=None, **news)


def _validate_regex(pattern: str) -> None:
    try:
        compiled(pattern)
    except InvalidPatternError as error:
        raise ApiError(
            ErrorCode.INVALID_REGULAR_EXPRESSION,
            f"SubscribedTopicRegex `{pattern}` is not a valid regular expression: {error}.",
        ) from error


def _has_text(text: str) -> bool:
    return bool(text.strip())


def _require(condition: bool, message: str) -> None:
    if not condition:
        raise ApiError(ErrorCode.INVALID_REQUEST, message)


def heartbeat_bytes(group: ConsumerGroup, request: Any) -> int:
    """Return the most memory that a ConsumerGroupHeartbeat adds to a group."""
    names = request.subscribed_topic_names or ()
    new_bytes = texts_bytes(names) + len(request.subscribed_topic_regex or "")
    member = group.members.get(request.member_id)
    if member is None:
        own = (request.member_id, request.instance_id or "", request.rack_id or "")
        return new_bytes + MEMBER_BYTES + texts_bytes(own) + (0 if group.members else GROUP_BYTES)
    return max(0, new_bytes - texts_bytes(member.topic_names) - len(member.topic_regex))


def is_leaving(request: Any) -> bool:
    return request.member_epoch in (LEAVE_EPOCH, LEAVE_STATIC_EPOCH)
