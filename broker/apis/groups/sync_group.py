"""SyncGroup: returns a member's assignment, which the leader sends in the same request (I14)."""

from __future__ import annotations

from typing import Any

from rotunda.broker.apis.context import BrokerContext
from rotunda.broker.coordinator.group import SyncRequest, SyncResult
from rotunda.broker.errors import ApiError
from rotunda.broker.ipc.request import Request
from rotunda.broker.protocol.error_codes import ErrorCode
from rotunda.broker.scheduling.deferred import Deferred

_PROTOCOL_FROM = 5


def handle_sync_group(request: Request, broker: BrokerContext, body: Any) -> dict[str, Any] | Deferred:
    """Return the member's assignment, once the leader's is committed."""
    protocol = body.protocol_type, body.protocol_name
    if request.api_version >= _PROTOCOL_FROM and None in protocol:
        return _response(SyncResult(int(ErrorCode.INCONSISTENT_GROUP_PROTOCOL)))
    if not body.group_id:
        return _response(SyncResult(int(ErrorCode.INVALID_GROUP_ID)))
    deferred = Deferred()
    instance_id = body.group_instance_id
    assignments = {each.member_id: each.assignment for each in body.assignments}
    try:
        broker.coordinators.groups.sync(
            body.group_id,
            SyncRequest(body.member_id, instance_id, body.generation_id, *protocol, assignments),
            lambda result: deferred.complete(_response(result)),
        )
    except ApiError as failure:
        return _response(SyncResult(failure.code))
    return deferred


def _response(result: SyncResult) -> dict[str, Any]:
    return {
        "error_code": result.error_code,
        "protocol_type": result.protocol_type,
        "protocol_name": result.protocol_name,
        "assignment": result.assignment,
    }
