"""Heartbeat: keeps a group's member alive, and returns whether it has to join again (I12). HOT."""

from __future__ import annotations

from typing import Any

from rotunda.broker.apis.context import BrokerContext
from rotunda.broker.errors import ApiError
from rotunda.broker.ipc.request import Request
from rotunda.broker.protocol.error_codes import ErrorCode


def handle_heartbeat(_request: Request, broker: BrokerContext, body: Any) -> dict[str, int]:
    """Return an error code: REBALANCE_IN_PROGRESS tells the member to join again."""
    if not body.group_id:
        return {"error_code": ErrorCode.INVALID_GROUP_ID}
    try:
        error = broker.coordinators.groups.heartbeat(
            body.group_id, body.member_id, body.group_instance_id, body.generation_id
        )
    except ApiError as failure:
        error = failure.code
    return {"error_code": error}
