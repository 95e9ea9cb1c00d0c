"""LeaveGroup: members leave, or an administrator removes them; several at a time from version 3 on (KIP-345, I13)."""

from __future__ import annotations

from typing import Any

from rotunda.broker.apis.context import BrokerContext
from rotunda.broker.apis.groups.join_group import MOST_OF_A_REASON, NO_REASON
from rotunda.broker.coordinator.group import LeavingMember
from rotunda.broker.errors import ApiError
from rotunda.broker.ipc.request import Request
from rotunda.broker.protocol.error_codes import ErrorCode
from rotunda.broker.scheduling.deferred import Deferred
from rotunda.broker.scheduling.slices import Work

_BATCHED_FROM = 3

#: Members removed in one slice.
_AT_ONCE = 100

#: Errors of the whole request.
_OF_THE_COORDINATOR = frozenset({int(ErrorCode.COORDINATOR_NOT_AVAILABLE), int(ErrorCode.NOT_COORDINATOR)})


def handle_leave_group(request: Request, broker: BrokerContext, body: Any) -> dict[str, Any] | Deferred | Work:
    """Return an error for each member, once the group without them is committed."""
    if not body.group_id:
        return _failure(int(ErrorCode.INVALID_GROUP_ID))
    if request.api_version >= _BATCHED_FROM:
        if len(body.members) > _AT_ONCE:
            return _in_portions(broker, body)
        return _leave(broker, body.group_id, [_leaving(each) for each in body.members], batched=True)
    member = LeavingMember(body.member_id, None, NO_REASON)
    return _leave(broker, body.group_id, [member], batched=False)


def _leave(
    broker: BrokerContext, group_id: str, members: list[LeavingMember], *, batched: bool
) -> dict[str, Any] | Deferred:
    deferred = Deferred()

    def respond(errors: list[int]) -> None:
        whole = next((error for error in errors if error in _OF_THE_COORDINATOR), 0)
        if batched and not whole:
            deferred.complete(_response(members, errors))
        else:
            deferred.complete(_failure(whole or errors[0]))

    try:
        broker.coordinators.groups.leave(group_id, members, respond)
    except ApiError as error:
        return _failure(error.code)
    return deferred


def _in_portions(broker: BrokerContext, body: Any) -> Work:
    """Remove very many members, some in each slice; the first error of the group ends it."""
    left: list[dict[str, Any]] = []
    for start in range(0, len(body.members), _AT_ONCE):
        members = [_leaving(each) for each in body.members[start : start + _AT_ONCE]]
        outcome = _leave(broker, body.group_id, members, batched=True)
        response = (yield outcome) if isinstance(outcome, Deferred) else outcome
        if response["error_code"]:
            return response
        left += response["members"]
        yield None
    return {"error_code": 0, "members": left}


def _leaving(each: Any) -> LeavingMember:
    reason = (each.reason or NO_REASON)[:MOST_OF_A_REASON]
    return LeavingMember(each.member_id, each.group_instance_id, reason)


def _failure(error: int) -> dict[str, Any]:
    return {"error_code": error, "members": []}


def _response(members: list[LeavingMember], errors: list[int]) -> dict[str, Any]:
    return {
        "error_code": 0,
        "members": [
            {"member_id": each.member_id, "group_instance_id": each.instance_id, "error_code": error}
            for each, error in zip(members, errors, strict=True)
        ],
    }
