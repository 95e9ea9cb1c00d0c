"""DescribeGroups: the state and the members of classic groups; an unknown one is Dead (I15)."""

from __future__ import annotations

from typing import Any

from rotunda.broker.apis.cluster.authorized_operations import group_operations
from rotunda.broker.apis.context import BrokerContext
from rotunda.broker.apis.groups.group_calls import MultiGroupApi, call_owners
from rotunda.broker.coordinator.classic.group import DEAD, STABLE, ClassicGroup
from rotunda.broker.ipc.request import Request
from rotunda.broker.protocol.error_codes import ErrorCode
from rotunda.broker.scheduling.slices import Work

_NOT_FOUND_FROM = 6


def handle_describe_groups(request: Request, broker: BrokerContext, body: Any) -> Work:
    """Return every requested group, from any coordinator."""
    return call_owners(request, broker, body, DESCRIBE_GROUPS)


def _group_response(request: Request, broker: BrokerContext, body: Any, group_id: str) -> dict[str, Any]:
    group = broker.coordinators.groups.find(group_id)
    if not isinstance(group, ClassicGroup):
        return _absent(request, broker, body, group_id, is_there=group is not None)
    stable = group.state is STABLE
    operations = group_operations(request, broker, group_id, body.include_authorized_operations)
    return {
        "error_code": 0,
        "group_id": group_id,
        "group_state": group.state_name,
        "protocol_type": group.protocol_type or "",
        "protocol_data": (group.protocol_name or "") if stable else "",
        "members": _members(group, with_metadata=stable),
        "authorized_operations": operations,
    }


def _members(group: ClassicGroup, *, with_metadata: bool) -> list[dict[str, Any]]:
    return [
        {
            "member_id": member.member_id,
            "group_instance_id": member.instance_id,
            "client_id": member.client_id,
            "client_host": member.client_host,
            "member_metadata": member.metadata(group.protocol_name) if with_metadata else b"",
            "member_assignment": member.assignment,
        }
        for member in group.members.values()
    ]


def _absent(request: Request, broker: BrokerContext, body: Any, group_id: str, *, is_there: bool) -> dict[str, Any]:
    """Return the response for an unknown group, or for one that is not classic (KIP-1043)."""
    if request.api_version < _NOT_FOUND_FROM:
        operations = group_operations(request, broker, group_id, body.include_authorized_operations)
        return {
            "error_code": 0,
            "group_id": group_id,
            "group_state": DEAD.value,
            "authorized_operations": operations,
        }
    return {
        "error_code": int(ErrorCode.GROUP_ID_NOT_FOUND),
        "error_message": f"Group {group_id} is not a classic group." if is_there else f"Group {group_id} not found.",
        "group_id": group_id,
        "group_state": DEAD.value,
    }


DESCRIBE_GROUPS = MultiGroupApi("groups", "groups", _group_response)
