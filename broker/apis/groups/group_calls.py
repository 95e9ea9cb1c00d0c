"""Requests for several groups: each group's coordinator handles its part, and the responses are combined.

Runs in handler processes, in slices. A request arrives at the owner of its first group. Each other owner gets a request
of the same API and version with its groups alone; it handles it with the same function, and returns each group's
encoded response. A group that is named several times is handled once.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Mapping, Sequence
from operator import itemgetter
from types import GeneratorType
from typing import TYPE_CHECKING, Any, NamedTuple

from rotunda.broker.apis.context import BrokerContext
from rotunda.broker.errors import ApiError
from rotunda.broker.ipc.request import Request, peer_request
from rotunda.broker.protocol import codec
from rotunda.broker.protocol.error_codes import ErrorCode
from rotunda.broker.protocol.headers import parse_header
from rotunda.broker.protocol.routing import GROUP_TOPIC
from rotunda.broker.protocol.sliced_responses import Encoded, Lazily, encoded_elements
from rotunda.broker.scheduling.deferred import Deferred
from rotunda.broker.scheduling.long_responses import AT_ONCE, TOO_LONG, each_of
from rotunda.broker.security.acl.acls import ResourceType
from rotunda.broker.security.session import ANONYMOUS, Sessions, pack_session
from rotunda.broker.steps import Steps

if TYPE_CHECKING:
    from rotunda.broker.scheduling.slices import Work

TASK = "call_group_api"

_SIZE_BYTES = 4

#: Precedes a request to another coordinator: the size of the session that follows.
_SESSION = struct.Struct(">i")

#: Precedes each group's response from another coordinator.
_HEAD = struct.Struct(
    ">i"  # bytes of the response
    "h"  # error code in it
)


def failed_group(group_id: str, error: int) -> dict[str, Any]:
    """Return the response element for a group that cannot be handled. It is short."""
    return {"group_id": group_id, "error_code": error}


class MultiGroupApi(NamedTuple):
    """One API: the fields with the groups in its messages, and the function for one of them."""

    request_field: str
    response_field: str
    handle: Callable[[Request, BrokerContext, Any, Any], Any]
    """Returns the response for one element of a request: (request, broker, body, element). Raises ApiError.

    Or a `Deferred` that is completed with it by a commit, or the work in slices that ends with one of these.
    """
    failed: Callable[[str, int], Any] = failed_group
    group_id: Callable[[Any], str] = str
    """The group id of an element of the request."""
    merged: Callable[[Sequence[Any]], Any] = itemgetter(0)
    """Returns one element for several of the same group."""


def call_owners(request: Request, broker: BrokerContext, body: Any, api: MultiGroupApi) -> Work:
    """Return the responses of all coordinators to a request, in the order of its groups."""
    items = yield from _distinct(body, api)
    responses: list[Any] = [None] * len(items)
    own: list[int] = []
    asked: list[tuple[list[int], Work]] = []
    owners = yield from _by_owner(broker, items, api)
    for owner, places in owners.items():
        if owner == broker.partitions.index:
            own = places
        else:
            question = _question(request, body, api, [items[place] for place in places])
            asked.append((places, broker.tasks.reply_of(owner, TASK, question)))
    for place in own:
        response = _respond(request, broker, body, items[place], api)
        responses[place] = (yield from response) if isinstance(response, GeneratorType) else response
        yield None
    for place in own:
        if isinstance(responses[place], Deferred):
            responses[place] = yield responses[place]
    for places, work in asked:
        for place, element in zip(places, (yield from _elements(work)), strict=False):
            responses[place] = element
            _note_denied(request, broker, element.error_code, api.group_id(items[place]))

    def reply_of(place: int) -> Any:
        response = responses[place]
        return failed(place, ErrorCode.COORDINATOR_NOT_AVAILABLE) if response is None else response

    def failed(place: int, error: int = TOO_LONG) -> Any:
        return api.failed(api.group_id(items[place]), error)

    return {api.response_field: Lazily(range(len(items)), reply_of, failed)}


def _respond(request: Request, broker: BrokerContext, body: Any, item: Any, api: MultiGroupApi) -> Any:
    """Return the response for a group of this coordinator, if the client is authorized for it."""
    group_id = api.group_id(item)
    if rejection := broker.access.rejection(request, ResourceType.GROUP, group_id):
        return api.failed(group_id, rejection)
    try:
        return api.handle(request, broker, body, item)
    except ApiError as failure:
        return api.failed(group_id, failure.code)


def _note_denied(request: Request, broker: BrokerContext, error_code: int, group_id: str) -> None:
    """Record a denial by another coordinator: the request log's row is that of this request."""
    if error_code == ErrorCode.GROUP_AUTHORIZATION_FAILED:
        broker.access.note_denied(request, ResourceType.GROUP, group_id)


def register_group_calls(broker: BrokerContext, apis: Mapping[int, MultiGroupApi]) -> None:
    """Register the task that handles other handlers' requests."""
    sessions = Sessions()

    def task(payload: bytes) -> Work:
        (session_bytes,) = _SESSION.unpack_from(payload)
        packed = payload[_SESSION.size : _SESSION.size + session_bytes]
        session = sessions.of(packed) if packed else ANONYMOUS
        payload = payload[_SESSION.size + session_bytes :]
        header = parse_header(payload, _SIZE_BYTES, len(payload))
        key, version = header.api_key, header.api_version
        body = codec.decode(key, version, payload, header.body_offset, len(payload))
        asked = peer_request(header, session, broker.clock.monotonic_ns())
        api = apis[key]
        response = yield from call_owners(asked, broker, body, api)
        most_bytes = broker.metadata.broker_config.response_max_bytes
        place = (key, version, api.response_field)
        elements = yield from encoded_elements(place, response[api.response_field], most_bytes)
        parts: list[bytes] = []
        yield from each_of(elements, lambda each: parts.append(_HEAD.pack(len(each.data), each.error_code) + each.data))
        return 0, b"".join(parts)

    broker.tasks.register_sliced(TASK, task)


def _distinct(request: Any, api: MultiGroupApi) -> Steps[list[Any]]:
    """Return the elements of a request, one for each group."""
    items: dict[str, list[Any]] = {}
    yield from each_of(
        getattr(request, api.request_field), lambda item: items.setdefault(api.group_id(item), []).append(item)
    )
    distinct: list[Any] = []
    yield from each_of(items.values(), lambda each: distinct.append(each[0] if len(each) == 1 else api.merged(each)))
    return distinct


def _elements(work: Work) -> Work:
    """Return another coordinator's response for each group: empty after an error."""
    error, payload = yield from work
    if error:
        return []
    found: list[Encoded] = []
    offset = 0
    while offset < len(payload):
        size, error = _HEAD.unpack_from(payload, offset)
        start = offset + _HEAD.size
        offset = start + size
        found.append(Encoded(payload[start:offset], error))
        if not len(found) % AT_ONCE:
            yield None
    return found


def _by_owner(broker: BrokerContext, items: Sequence[Any], api: MultiGroupApi) -> Steps[dict[int, list[int]]]:
    owners: dict[int, list[int]] = {}
    owner_of = broker.coordinators.locator.owner_of
    for place, item in enumerate(items, 1):
        owners.setdefault(owner_of(GROUP_TOPIC, api.group_id(item)), []).append(place - 1)
        if not place % AT_ONCE:
            yield
    return owners


def _question(request: Request, body: Any, api: MultiGroupApi, items: Sequence[Any]) -> bytes:
    """Return a request of the same API and version for some of the groups, preceded by the client's session.

    The session is sent so that the other coordinator authorizes the client too.
    """
    part = body.replaced(**{api.request_field: items})
    question = codec.encode_request(request.api_key, request.api_version, 0, request.client_id, part)
    asker = request.session
    session = b"" if asker is ANONYMOUS else pack_session(asker.user, asker.host, asker.reached)
    return _SESSION.pack(len(session)) + session + question
