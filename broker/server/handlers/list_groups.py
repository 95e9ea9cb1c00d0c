"""ListGroups: every group of every handler, by state and by type if asked for (KIP-518, KIP-848)."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from broker.protocol.error_codes import ErrorCode
from broker.protocol.primitives import INT32, read_string, string_bytes
from broker.server.request_context import Deferred, RequestContext

if TYPE_CHECKING:
    from broker.server.broker_state import BrokerState
    from broker.server.target_tasks import TaskDone

TASK = "list_groups"

#: (id, protocol type, state, kind) of a group.
Listed = tuple[str, str, str, str]


def handle_list_groups(context: RequestContext, request: Any) -> Deferred:
    """Return the groups that the filters let through; an empty filter lets everything through."""
    states = {text.lower() for text in getattr(request, "states_filter", ())}
    kinds = {text.lower() for text in getattr(request, "types_filter", ())}
    deferred = Deferred()
    found: list[Listed] = []
    handlers = context.broker.heritage.handlers
    left, failed = handlers, 0

    def done(error: int, payload: bytes) -> None:
        nonlocal left, failed
        left -= 1
        failed = error or failed
        found.extend(() if error else decode_listed(payload))
        if not left:
            deferred.complete(_response(found, states, kinds, failed))

    for handler in range(handlers):
        context.broker.tasks.ask(handler, TASK, b"", done)
    return deferred


def register_list_groups(state: BrokerState) -> None:
    """Let other handlers have the groups of this one."""

    def task(payload: bytes, reply: TaskDone) -> None:
        del payload
        groups = state.coordinators.groups.groups()
        reply(
            0, encode_listed([(each.group_id, each.protocol_type or "", each.state_name, each.kind) for each in groups])
        )

    state.tasks.register(TASK, task)


def encode_listed(groups: Iterable[Listed]) -> bytes:
    """Return groups as one handler tells them another."""
    fields = [string_bytes(text) for group in groups for text in group]
    return INT32.pack(len(fields) // 4) + b"".join(fields)


def decode_listed(payload: bytes) -> list[Listed]:
    """Return the groups that another handler has told."""
    (count,) = INT32.unpack_from(payload)
    at, texts = 4, []
    for _ in range(4 * count):
        text, at = read_string(payload, at, len(payload))
        texts.append(text)
    return list(zip(*[iter(texts)] * 4, strict=True))


def _response(found: list[Listed], states: set[str], kinds: set[str], error: int) -> dict[str, Any]:
    return {
        "throttle_time_ms": 0,
        "error_code": int(ErrorCode.COORDINATOR_NOT_AVAILABLE) if error else 0,
        "groups": [
            {"group_id": group_id, "protocol_type": protocol_type, "group_state": state, "group_type": kind}
            for group_id, protocol_type, state, kind in sorted(found)
            if (not states or state.lower() in states) and (not kinds or kind.lower() in kinds)
        ],
    }
