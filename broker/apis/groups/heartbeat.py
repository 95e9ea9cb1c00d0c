"""Heartbeat: a member of a group says that it is there, and learns whether it has to join again (I12). HOT."""

from __future__ import annotations

from typing import Any

from broker.apis.context import RequestContext
from broker.errors import ApiError
from broker.protocol.error_codes import ErrorCode


def handle_heartbeat(context: RequestContext, request: Any) -> dict[str, int]:
    """Return an error code: REBALANCE_IN_PROGRESS asks the member to join again."""
    if not request.group_id:
        return {"error_code": ErrorCode.INVALID_GROUP_ID}
    try:
        error = context.broker.coordinators.groups.heartbeat(
            request.group_id, request.member_id, request.group_instance_id, request.generation_id
        )
    except ApiError as failure:
        error = failure.code
    return {"error_code": error}
