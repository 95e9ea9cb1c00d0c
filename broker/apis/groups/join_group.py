"""JoinGroup: a member joins its group; the response waits until all have joined (I11)."""

from __future__ import annotations

from typing import Any

from rotunda.broker.apis.context import BrokerContext
from rotunda.broker.apis.groups.consumer_group_heartbeat import client_host
from rotunda.broker.coordinator.group import JoinedMember, JoinRequest, JoinResult
from rotunda.broker.errors import ApiError
from rotunda.broker.ipc.request import Request
from rotunda.broker.protocol.error_codes import ErrorCode
from rotunda.broker.protocol.sliced_responses import Lazily
from rotunda.broker.scheduling.deferred import Deferred
from rotunda.broker.scheduling.long_responses import at_length
from rotunda.broker.scheduling.slices import Work

_MEMBER_ID_REQUIRED_FROM = 4
_NULL_PROTOCOL_FROM = 7
_SKIP_ASSIGNMENT_FROM = 9

#: Most protocols of a member. Clients have one for each of their assignors; each is compared with those of all members.
MOST_PROTOCOLS = 100

#: Clients cut their reasons to this many characters.
MOST_OF_A_REASON = 255
NO_REASON = "not provided"

#: Longest text that fits a record, also with a suffix that makes it a member's id.
_LONGEST_BYTES = 2**15 - 1 - 64

#: Most members of a response that is encoded at once: a millisecond.
_MOST_AT_ONCE = 100


def handle_join_group(request: Request, broker: BrokerContext, body: Any) -> dict[str, Any] | Deferred:
    """Return the generation and its protocol; the leader gets all members (KIP-62, KIP-345, KIP-394)."""
    version = request.api_version
    config = broker.metadata.broker_config
    session_timeout_ms = body.session_timeout_ms
    error = ErrorCode.NONE
    if not body.group_id:
        error = ErrorCode.INVALID_GROUP_ID
    elif not config.group_min_session_timeout_ms <= session_timeout_ms <= config.group_max_session_timeout_ms:
        error = ErrorCode.INVALID_SESSION_TIMEOUT
    elif len(body.protocols) > MOST_PROTOCOLS or not _can_be_written(request, body):
        error = ErrorCode.INVALID_REQUEST
    if error:
        return _response(version, JoinResult(int(error), body.member_id))
    deferred = Deferred()
    try:
        broker.coordinators.groups.join(
            body.group_id,
            _join_request(request, broker, body, session_timeout_ms),
            lambda result: deferred.complete(_of_any_length(_response(version, result))),
        )
    except ApiError as failure:
        return _response(version, JoinResult(failure.code, body.member_id))
    return deferred


def _of_any_length(response: dict[str, Any]) -> dict[str, Any] | Work:
    """Return a response that is encoded in slices if it has many members, as the leader's."""
    return at_length(response) if len(response["members"]) > _MOST_AT_ONCE else response


def _can_be_written(request: Request, body: Any) -> bool:
    """Return whether a member's texts fit the record of the group; two of them may begin its id."""
    texts = (request.client_id, body.group_instance_id or "", body.protocol_type)
    names = [each.name for each in body.protocols]
    return all(len(text.encode()) <= _LONGEST_BYTES for text in (*texts, *names))


def _join_request(request: Request, broker: BrokerContext, body: Any, session_timeout_ms: int) -> JoinRequest:
    version = request.api_version
    return JoinRequest(
        member_id=body.member_id,
        instance_id=body.group_instance_id,
        client_id=request.client_id,
        client_host=client_host(request, broker),
        session_timeout_ms=session_timeout_ms,
        rebalance_timeout_ms=session_timeout_ms if version == 0 else body.rebalance_timeout_ms,
        protocol_type=body.protocol_type,
        protocols=tuple([(each.name, each.metadata) for each in body.protocols]),
        reason=(body.reason or NO_REASON)[:MOST_OF_A_REASON],
        needs_member_id=version >= _MEMBER_ID_REQUIRED_FROM,
        may_skip_assignment=version >= _SKIP_ASSIGNMENT_FROM,
    )


def _response(version: int, result: JoinResult) -> dict[str, Any]:
    members = result.members
    return {
        "error_code": result.error_code,
        "generation_id": result.generation,
        "protocol_type": result.protocol_type,
        "protocol_name": result.protocol_name if version >= _NULL_PROTOCOL_FROM else result.protocol_name or "",
        "leader": result.leader,
        "skip_assignment": result.skip_assignment,
        "member_id": result.member_id,
        "members": Lazily(members, _member) if len(members) > _MOST_AT_ONCE else [_member(each) for each in members],
    }


def _member(member: JoinedMember) -> dict[str, Any]:
    return {"member_id": member.member_id, "group_instance_id": member.instance_id, "metadata": member.metadata}
