"""ConsumerGroupDescribe (KIP-848, I69) and ShareGroupDescribe (KIP-932): members and their assignments.

Runs in handler processes, in a group's coordinator; `group_calls` asks the coordinators of the other groups. Must not
know how a group assigns partitions.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

from rotunda.broker.apis.cluster.authorized_operations import group_operations
from rotunda.broker.apis.context import BrokerContext
from rotunda.broker.apis.groups.consumer_group_heartbeat import require_consumer_protocol
from rotunda.broker.apis.groups.group_calls import MultiGroupApi, call_owners, failed_group
from rotunda.broker.apis.groups.share_group_heartbeat import require_share_groups
from rotunda.broker.coordinator.consumer.assignment import NO_PARTITIONS, Assignment
from rotunda.broker.coordinator.consumer.group import ConsumerGroup
from rotunda.broker.coordinator.consumer.member import ConsumerGroupMember
from rotunda.broker.coordinator.consumer.target_assignment import preferred_assignor
from rotunda.broker.coordinator.group import Group
from rotunda.broker.coordinator.share import simple_assignor
from rotunda.broker.coordinator.share.group import ShareGroup
from rotunda.broker.coordinator.share.member import ShareGroupMember
from rotunda.broker.errors import ApiError
from rotunda.broker.ipc.request import Request
from rotunda.broker.metadata.metadata_cache import MetadataCache
from rotunda.broker.protocol.error_codes import ErrorCode, text_of
from rotunda.broker.protocol.sliced_responses import Lazily
from rotunda.broker.scheduling.slices import Work
from rotunda.broker.security.acl.acls import ResourceType

_CLASSIC_MEMBER, _CONSUMER_MEMBER = 0, 1


def handle_consumer_group_describe(request: Request, broker: BrokerContext, body: Any) -> Work:
    """Return every requested group, from any coordinator."""
    return call_owners(request, broker, body, CONSUMER_GROUP_DESCRIBE)


def _consumer_group(request: Request, broker: BrokerContext, body: Any, group_id: str) -> dict[str, Any]:
    require_consumer_protocol(broker)
    group = broker.coordinators.groups.find(group_id)
    if not isinstance(group, ConsumerGroup):
        return _not_found(group_id, group, "consumer")
    assigned = [member.held for member in group.members.values()]
    assigned += [group.target.get(member_id, NO_PARTITIONS) for member_id in group.members]
    denial = _denial_of_topics(request, broker, group_id, assigned)
    return denial or _consumer_described(request, broker, group, body.include_authorized_operations)


def _consumer_described(
    request: Request, broker: BrokerContext, group: ConsumerGroup, with_operations: bool
) -> dict[str, Any]:
    metadata = broker.metadata
    assignors = metadata.broker_config.group_consumer_assignors
    return {
        "error_code": 0,
        "error_message": None,
        "group_id": group.group_id,
        "group_state": group.state_name,
        "group_epoch": group.epoch,
        "assignment_epoch": group.assignment_epoch,
        "assignor_name": preferred_assignor(group.members.values(), assignors),
        "members": Lazily(
            list(group.members.values()),
            lambda member: _consumer_member_fields(metadata, member, group.target.get(member.member_id, NO_PARTITIONS)),
        ),
        "authorized_operations": group_operations(request, broker, group.group_id, with_operations),
    }


def _consumer_member_fields(metadata: MetadataCache, member: ConsumerGroupMember, target: Assignment) -> dict[str, Any]:
    return {
        "member_id": member.member_id,
        "instance_id": member.instance_id,
        "rack_id": member.rack_id,
        "member_epoch": member.epoch,
        "client_id": member.client_id,
        "client_host": member.client_host,
        "subscribed_topic_names": sorted(member.topic_names),
        "subscribed_topic_regex": member.topic_regex,
        "assignment": _assignment_fields(metadata, member.held),
        "target_assignment": _assignment_fields(metadata, target),
        "member_type": _CONSUMER_MEMBER if member.classic is None else _CLASSIC_MEMBER,
    }


def handle_share_group_describe(request: Request, broker: BrokerContext, body: Any) -> dict[str, Any] | Work:
    """Return every requested group, from any coordinator."""
    try:
        require_share_groups(broker)
    except ApiError as error:
        return {"groups": [_failed(group_id, error.code) for group_id in body.group_ids]}
    return call_owners(request, broker, body, SHARE_GROUP_DESCRIBE)


def _share_group(request: Request, broker: BrokerContext, body: Any, group_id: str) -> dict[str, Any]:
    group = broker.coordinators.groups.find(group_id)
    if not isinstance(group, ShareGroup):
        return _not_found(group_id, group, "share")
    assigned = [member.assigned for member in group.members.values()]
    if denial := _denial_of_topics(request, broker, group_id, assigned):
        return denial
    metadata = broker.metadata
    return {
        "error_code": 0,
        "group_id": group_id,
        "group_state": group.state_name,
        "group_epoch": group.epoch,
        "assignment_epoch": group.assignment_epoch,
        "assignor_name": simple_assignor.NAME,
        "members": Lazily(list(group.members.values()), lambda member: _share_member_fields(metadata, member)),
        "authorized_operations": group_operations(request, broker, group_id, body.include_authorized_operations),
    }


def _share_member_fields(metadata: MetadataCache, member: ShareGroupMember) -> dict[str, Any]:
    return {
        "member_id": member.member_id,
        "rack_id": member.rack_id,
        "member_epoch": member.epoch,
        "client_id": member.client_id,
        "client_host": member.client_host,
        "subscribed_topic_names": sorted(member.topic_names),
        "assignment": _assignment_fields(metadata, member.assigned),
    }


def _failed(group_id: str, error: int) -> dict[str, Any]:
    """Return the element of a group with an error and its text."""
    # Kafka returns no message to clients without the right to the group.
    message = None if error == ErrorCode.GROUP_AUTHORIZATION_FAILED else text_of(error)
    return {**failed_group(group_id, error), "error_message": message}


def _not_found(group_id: str, group: Group | None, kind: str) -> dict[str, Any]:
    """Return the element for a group that does not exist, or that is of another kind."""
    if not group_id:
        return _failed(group_id, ErrorCode.INVALID_GROUP_ID)
    problem = "not found" if group is None else f"is not a {kind} group"
    return {**failed_group(group_id, ErrorCode.GROUP_ID_NOT_FOUND), "error_message": f"Group {group_id} {problem}."}


def _denial_of_topics(
    request: Request, broker: BrokerContext, group_id: str, assignments: Collection[Assignment]
) -> dict[str, Any] | None:
    """Return the element for clients that may not see a topic of these assignments; or None."""
    metadata = broker.metadata
    if metadata.authorizer is None:
        return None
    found = [metadata.topic_by_id(topic_id) for topic_id in {topic_id for each in assignments for topic_id in each}]
    error = max(
        [broker.access.rejection(request, ResourceType.TOPIC, topic.name) for topic in found if topic is not None],
        default=0,
    )
    message = "The group has described topic(s) that the client is not authorized to describe."
    return {**failed_group(group_id, error), "error_message": message} if error else None


def _assignment_fields(metadata: MetadataCache, assignment: Assignment) -> dict[str, Any]:
    """Return an assignment with the names of its topics; deleted ones are left out, as in Kafka."""
    found = ((metadata.topic_by_id(topic_id), partitions) for topic_id, partitions in assignment.items())
    return {
        "topic_partitions": [
            {"topic_id": topic.topic_id, "topic_name": topic.name, "partitions": sorted(partitions)}
            for topic, partitions in found
            if topic is not None
        ]
    }


CONSUMER_GROUP_DESCRIBE = MultiGroupApi("group_ids", "groups", _consumer_group, _failed)
SHARE_GROUP_DESCRIBE = MultiGroupApi("group_ids", "groups", _share_group, _failed)
