"""ListGroups: every group of every handler, optionally filtered by state and type (KIP-518, KIP-848, I16)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from rotunda.broker.apis.context import BrokerContext
from rotunda.broker.ipc.request import Request
from rotunda.broker.protocol.error_codes import ErrorCode
from rotunda.broker.protocol.primitives import read_string, string_bytes
from rotunda.broker.protocol.routing import GROUP_TOPIC
from rotunda.broker.protocol.sliced_responses import Lazily
from rotunda.broker.scheduling.long_responses import AT_ONCE, each_of, in_order
from rotunda.broker.security.acl.acls import ResourceType

if TYPE_CHECKING:
    from rotunda.broker.coordinator.group import Group
    from rotunda.broker.scheduling.slices import Work

TASK = "list_groups"

#: (id, protocol type, state, kind) of a group.
Listed = tuple[str, str, str, str]


def handle_list_groups(request: Request, broker: BrokerContext, body: Any) -> Work:
    """Return the groups that match the filters; an empty filter matches all."""
    states = {text.lower() for text in body.states_filter}
    kinds = {text.lower() for text in body.types_filter}
    tasks = broker.tasks
    asked = [tasks.reply_of(handler, TASK, b"") for handler in range(broker.coordinators.locator.handlers)]
    found: list[Listed] = []
    for work in asked:
        error, payload = yield from work
        if error:
            is_loading = error == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
            return _response([], error if is_loading else int(ErrorCode.COORDINATOR_NOT_AVAILABLE))
        found += yield from decode_listed(payload)
    wanted: list[Listed] = []
    sees_all = not broker.access.rejection(request, ResourceType.CLUSTER)

    def choose(group: Listed) -> None:
        group_id, _, state, kind = group
        is_seen = sees_all or not broker.access.rejection(request, ResourceType.GROUP, group_id)
        if is_seen and (not states or state.lower() in states) and (not kinds or kind.lower() in kinds):
            wanted.append(group)

    yield from each_of(found, choose)
    return _response((yield from in_order(wanted)))


def register_list_groups(broker: BrokerContext) -> None:
    """Register the task that returns this handler's groups to other handlers."""

    def task(payload: bytes) -> Work:
        del payload
        if broker.coordinators.locator.is_loading(GROUP_TOPIC):
            return int(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS), b""
        parts: list[bytes] = []
        yield from each_of(list(broker.coordinators.groups.groups()), lambda group: parts.append(_encoded(group)))
        return 0, b"".join(parts)

    broker.tasks.register_sliced(TASK, task)


def _encoded(group: Group) -> bytes:
    """Return a group, encoded for another handler."""
    texts = (group.group_id, group.protocol_type or "", group.state_name, group.kind)
    return b"".join([string_bytes(text) for text in texts])


def decode_listed(payload: bytes) -> Work:
    """Return the groups in another handler's message."""
    found: list[Listed] = []
    at, end = 0, len(payload)
    while at < end:
        group_id, at = read_string(payload, at, end)
        protocol_type, at = read_string(payload, at, end)
        state, at = read_string(payload, at, end)
        kind, at = read_string(payload, at, end)
        found.append((group_id, protocol_type, state, kind))
        if not len(found) % AT_ONCE:
            yield None
    return found


def _response(groups: list[Listed], error: int = 0) -> dict[str, Any]:
    return {"error_code": error, "groups": Lazily(groups, _fields)}


def _fields(group: Listed) -> dict[str, str]:
    group_id, protocol_type, state, kind = group
    return {"group_id": group_id, "protocol_type": protocol_type, "group_state": state, "group_type": kind}
