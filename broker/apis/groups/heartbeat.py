"""Heartbeat: a member of a group says that it is there, and learns whether it has to join again (I12). HOT."""

from __future__ import annotations

from broker.apis.context import BrokerContext, RequestContext
from broker.errors import ApiError
from broker.protocol.error_codes import ErrorCode
from broker.protocol.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from broker.security.acl.acls import ResourceType


def handle_heartbeat(context: RequestContext, request: HeartbeatRequest) -> HeartbeatResponse:
    """Return an error code: REBALANCE_IN_PROGRESS asks the member to join again."""
    refusal = context.refusal(ResourceType.GROUP, request.group_id)
    return HeartbeatResponse(refusal or judge_heartbeat(context.broker, request))


def judge_heartbeat(broker: BrokerContext, request: HeartbeatRequest) -> int:
    """Take a heartbeat; return its error code."""
    group_id, generation, member_id, instance_id = request
    if not group_id:
        return ErrorCode.INVALID_GROUP_ID
    try:
        return broker.coordinators.groups.heartbeat(group_id, member_id, instance_id, generation)
    except ApiError as error:
        return error.code
