"""Heartbeat: a member of a group says that it is there, and learns whether it has to join again (I12). HOT."""

from __future__ import annotations

from typing import Any

from broker.apis.context import RequestContext
from broker.errors import ApiError
from broker.protocol.error_codes import ErrorCode
from broker.security.acl.acls import ResourceType


def handle_heartbeat(context: RequestContext, request: Any) -> dict[str, int]:
    """Return an error code: REBALANCE_IN_PROGRESS asks the member to join again."""
    return {"error_code": context.refusal(ResourceType.GROUP, request.group_id) or _heartbeat(context, request)}


def _heartbeat(context: RequestContext, request: Any) -> int:
    if not request.group_id:
        return ErrorCode.INVALID_GROUP_ID
    try:
        return context.broker.coordinators.groups.heartbeat(
            request.group_id, request.member_id, request.group_instance_id, request.generation_id
        )
    except ApiError as error:
        return error.code
