"""Requests that name several groups: each group is answered for by its coordinator, and the answers are put together.

Runs in handler processes. A request arrives at the owner of its first group. For each other owner a request of the same
API and version is made with its groups alone; that owner answers it with the same function.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import fields
from typing import TYPE_CHECKING, Any, NamedTuple

from broker.protocol import kio_adapter
from broker.protocol.coordinator_routing import GROUP_TOPIC
from broker.protocol.error_codes import ErrorCode
from broker.protocol.headers import parse_header
from broker.server.request_context import Deferred, RequestContext

if TYPE_CHECKING:
    from broker.server.broker_state import BrokerState
    from broker.server.target_tasks import TaskDone

TASK = "call_group_api"

#: What is called with the answer for one group.
GroupAnswer = Callable[[Any], None]

_SIZE_BYTES = 4


class MultiGroupApi(NamedTuple):
    """One API: where its messages list the groups, and what answers for one of them."""

    request_field: str
    response_field: str
    group_id: Callable[[Any], str]
    """The id of the group that an element of the request names."""
    answer: Callable[[RequestContext, Any, Any, GroupAnswer], None]
    """Answers one element of a request: (context, request, element, answer), now or with this turn's commit."""
    failed: Callable[[RequestContext, Any, Any, int], Any]
    """The answer for an element whose coordinator could not be asked."""


def call_owners(context: RequestContext, request: Any, api: MultiGroupApi) -> Deferred:
    """Return the answers of all coordinators to a request, in the order of its groups."""
    deferred = Deferred()
    items: Sequence[Any] = getattr(request, api.request_field)
    results: list[Any] = [None] * len(items)
    left = len(items)

    def note(places: Sequence[int], answers: Sequence[Any]) -> None:
        nonlocal left
        for place, answer in zip(places, answers, strict=True):
            results[place] = answer
        left -= len(places)
        if not left:
            deferred.complete({"throttle_time_ms": 0, api.response_field: results})

    if not items:
        note((), ())
    for owner, places in _by_owner(context, [api.group_id(item) for item in items]).items():
        if owner == context.broker.index:
            for place in places:
                api.answer(context, request, items[place], _noting(note, place))
        else:
            _ask(context, request, api, (owner, places), note)
    return deferred


def register_group_calls(state: BrokerState, apis: Mapping[int, MultiGroupApi]) -> None:
    """Let other handlers have their requests answered here."""

    def task(payload: bytes, reply: TaskDone) -> None:
        header = parse_header(payload, _SIZE_BYTES, len(payload))
        key, version = header.api_key, header.api_version
        request = kio_adapter.decode(key, version, payload, header.body_offset, len(payload))
        context = RequestContext(
            key, version, header.correlation_id, header.client_id, 0, 0, state.heritage.listeners[0],
            state.clock.monotonic_ns(), state,
        )  # fmt: skip
        answered = call_owners(context, request, apis[key])
        answered.bind(lambda response: reply(0, kio_adapter.encode_response(key, version, 0, response)))

    state.tasks.register(TASK, task)


def _by_owner(context: RequestContext, group_ids: Sequence[str]) -> dict[int, list[int]]:
    owners: dict[int, list[int]] = {}
    owner_of = context.broker.coordinators.owner_of
    for place, group_id in enumerate(group_ids):
        owners.setdefault(owner_of(GROUP_TOPIC, group_id), []).append(place)
    return owners


def _noting(note: Callable[[Sequence[int], Sequence[Any]], None], place: int) -> GroupAnswer:
    return lambda answer: note((place,), (answer,))


def _ask(
    context: RequestContext,
    request: Any,
    api: MultiGroupApi,
    whom: tuple[int, Sequence[int]],
    note: Callable[[Sequence[int], Sequence[Any]], None],
) -> None:
    owner, places = whom
    key, version = context.api_key, context.api_version
    items = [getattr(request, api.request_field)[place] for place in places]
    values = {field.name: getattr(request, field.name) for field in fields(request)} | {api.request_field: items}
    payload = kio_adapter.encode_request(key, version, 0, context.client_id, values)

    def done(error: int, answer: bytes) -> None:
        if error:
            unavailable = int(ErrorCode.COORDINATOR_NOT_AVAILABLE)
            note(places, [api.failed(context, request, item, unavailable) for item in items])
        else:
            response = kio_adapter.decode_response(key, version, answer, _SIZE_BYTES, len(answer))
            note(places, getattr(response, api.response_field))

    context.broker.tasks.ask(owner, TASK, payload, done)
