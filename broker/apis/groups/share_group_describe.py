"""ShareGroupDescribe (KIP-932): the members of share groups and their assignments."""

from __future__ import annotations

from typing import Any

from rotunda.broker.apis.cluster.authorized_operations import group_operations
from rotunda.broker.apis.context import BrokerContext
from rotunda.broker.apis.groups.group_calls import MultiGroupApi, call_owners
from rotunda.broker.apis.groups.group_descriptions import (
    assignment_fields,
    denial_of_topics,
    failed_description,
    not_found,
)
from rotunda.broker.apis.groups.share_group_heartbeat import require_share_groups
from rotunda.broker.coordinator.share import simple_assignor
from rotunda.broker.coordinator.share.group import ShareGroup
from rotunda.broker.coordinator.share.member import ShareGroupMember
from rotunda.broker.errors import ApiError
from rotunda.broker.ipc.request import Request
from rotunda.broker.metadata.metadata_cache import MetadataCache
from rotunda.broker.protocol.sliced_responses import Lazily
from rotunda.broker.scheduling.slices import Work


def handle_share_group_describe(request: Request, broker: BrokerContext, body: Any) -> dict[str, Any] | Work:
    """Return every requested group, from any coordinator."""
    try:
        require_share_groups(broker)
    except ApiError as error:
        return {"groups": [failed_description(group_id, error.code) for group_id in body.group_ids]}
    return call_owners(request, broker, body, SHARE_GROUP_DESCRIBE)


def _group_response(request: Request, broker: BrokerContext, body: Any, group_id: str) -> dict[str, Any]:
    group = broker.coordinators.groups.find(group_id)
    if not isinstance(group, ShareGroup):
        return not_found(group_id, group, "share")
    assigned = [member.assigned for member in group.members.values()]
    if denial := denial_of_topics(request, broker, group_id, assigned):
        return denial
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


def _member_fields(metadata: MetadataCache, member: ShareGroupMember) -> dict[str, Any]:
    return {
        "member_id": member.member_id,
        "rack_id": member.rack_id,
        "member_epoch": member.epoch,
        "client_id": member.client_id,
        "client_host": member.client_host,
        "subscribed_topic_names": sorted(member.topic_names),
        "assignment": assignment_fields(metadata, member.assigned),
    }


SHARE_GROUP_DESCRIBE = MultiGroupApi("group_ids", "groups", _group_response, failed_description)
