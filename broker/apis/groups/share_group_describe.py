"""ShareGroupDescribe (KIP-932): the members of share groups and their assignments."""

from __future__ import annotations

from typing import Any

from rotunda.broker.apis.cluster.authorized_operations import group_operations
from rotunda.broker.apis.context import BrokerContext
from rotunda.broker.apis.groups.group_calls import MultiGroupApi, call_owners, failed_group
from rotunda.broker.apis.groups.share_group_heartbeat import require_share_groups
from rotunda.broker.coordinator.consumer.assignment import Assignment
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


def handle_share_group_describe(request: Request, broker: BrokerContext, body: Any) -> dict[str, Any] | Work:
    """Return every requested group, from any coordinator."""
    try:
        require_share_groups(broker)
    except ApiError as error:
        return {"groups": [_failed(group_id, error.code) for group_id in body.group_ids]}
    return call_owners(request, broker, body, SHARE_GROUP_DESCRIBE)


def _group_response(request: Request, broker: BrokerContext, body: Any, group_id: str) -> dict[str, Any]:
    group = broker.coordinators.groups.find(group_id)
    if not isinstance(group, ShareGroup):
        problem = "not found" if group is None else "is not a share group"
        return {**failed_group(group_id, ErrorCode.GROUP_ID_NOT_FOUND), "error_message": f"Group {group_id} {problem}."}
    if rejection := _topics_error(request, broker, group):
        message = "The group has described topic(s) that the client is not authorized to describe."
        return {**failed_group(group_id, rejection), "error_message": message}
    metadata = broker.metadata
    return {
        "error_code": 0,
        "group_id": group_id,
        "group_state": group.state_name,
        "group_epoch": group.epoch,
        "assignment_epoch": group.assignment_epoch,
        "assignor_name": simple_assignor.NAME,
        "members": Lazily(list(group.members.values()), lambda member: _member_fields(metadata, member)),
        "authorized_operations": group_operations(request, broker, group_id, body.include_authorized_operations),
    }


def _topics_error(request: Request, broker: BrokerContext, group: ShareGroup) -> int:
    """Return the error for clients that may not see a topic of the members' assignments; or 0."""
    metadata = broker.metadata
    if metadata.authorizer is None:
        return 0
    topic_ids = {topic_id for member in group.members.values() for topic_id in member.assigned}
    found = [metadata.topic_by_id(topic_id) for topic_id in topic_ids]
    return max(
        [broker.access.rejection(request, ResourceType.TOPIC, topic.name) for topic in found if topic is not None],
        default=0,
    )


def _failed(group_id: str, error: int) -> dict[str, Any]:
    # Kafka returns no message to clients without the right to the group.
    message = None if error == ErrorCode.GROUP_AUTHORIZATION_FAILED else text_of(error)
    return {**failed_group(group_id, error), "error_message": message}


def _member_fields(metadata: MetadataCache, member: ShareGroupMember) -> dict[str, Any]:
    return {
        "member_id": member.member_id,
        "rack_id": member.rack_id,
        "member_epoch": member.epoch,
        "client_id": member.client_id,
        "client_host": member.client_host,
        "subscribed_topic_names": sorted(member.topic_names),
        "assignment": _assignment_fields(metadata, member.assigned),
    }


def _assignment_fields(metadata: MetadataCache, assignment: Assignment) -> dict[str, Any]:
    """Return an assignment with the names of its topics; deleted ones are omitted."""
    found = ((metadata.topic_by_id(topic_id), partitions) for topic_id, partitions in assignment.items())
    return {
        "topic_partitions": [
            {"topic_id": topic.topic_id, "topic_name": topic.name, "partitions": sorted(partitions)}
            for topic, partitions in found
            if topic is not None
        ]
    }


SHARE_GROUP_DESCRIBE = MultiGroupApi("group_ids", "groups", _group_response, _failed)
