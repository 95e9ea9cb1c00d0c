"""FindCoordinator: the broker itself, on the request's listener, for groups and transactions (``C18``).

The first request for a group, or for a transaction, has the internal topic made that keeps them; it waits for that, so
that no client is sent to a coordinator that cannot answer yet. The answer for many keys is made in slices.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from broker.apis.context import RequestContext
from broker.protocol.coordinator_routing import GROUP_TOPIC, TRANSACTION_TOPIC
from broker.protocol.error_codes import ErrorCode, text_of
from broker.scheduling.deferred import Deferred
from broker.scheduling.following import after
from broker.scheduling.long_answers import AT_ONCE, each_of
from broker.scheduling.slices import Work
from broker.security.acl.acls import ResourceType

_RESOURCES = {0: ResourceType.GROUP, 1: ResourceType.TRANSACTIONAL_ID}
_TOPICS = {0: GROUP_TOPIC, 1: TRANSACTION_TOPIC}
_FIRST_BATCHED_VERSION = 4

#: How long a request waits for the internal topic. The client asks again after COORDINATOR_NOT_AVAILABLE.
CREATE_WAIT_MS = 5000


def handle_find_coordinator(context: RequestContext, request: Any) -> dict[str, Any] | Work | Deferred:
    """Return the coordinator of each key; INVALID_REQUEST for a type of key that has none here."""
    key_type = request.key_type
    topic = _TOPICS.get(key_type)
    if topic is None:
        return _response(context, request, ErrorCode.INVALID_REQUEST)
    if context.broker.metadata.authorizer is not None:
        return _authorized(context, request, _RESOURCES[key_type])
    return _found(context, request, topic)


def _authorized(context: RequestContext, request: Any, resource_type: ResourceType) -> dict[str, Any] | Work | Deferred:
    """Return the coordinators of the keys that the client may see, and an error for each other."""
    topic = _TOPICS[request.key_type if context.api_version else 0]
    if context.api_version < _FIRST_BATCHED_VERSION:
        refusal = context.refusal(resource_type, request.key)
        return _response(context, request, refusal) if refusal else _found(context, request, topic)
    refusals = {key: context.refusal(resource_type, key) for key in request.coordinator_keys}
    refused = [{"key": key, **_coordinator(context, error)} for key, error in refusals.items() if error]
    if not refused:
        return _found(context, request, topic)
    keys = tuple(key for key in request.coordinator_keys if not refusals[key])
    if not keys:
        return _batched(refused)
    found = _found(context, request.replaced(coordinator_keys=keys), topic)
    answer: dict[str, Any] | Work | Deferred = after(
        found, lambda response: _batched([*response["coordinators"], *refused])
    )
    return answer


def _found(context: RequestContext, request: Any, topic: str) -> dict[str, Any] | Work | Deferred:
    if context.broker.metadata.topic(topic) is not None:
        return _response(context, request, 0)
    context.broker.create_topics([topic])

    def retry(final: bool) -> dict[str, Any] | Work | None:
        # Every handler opens what it owns of a topic before it takes another request.
        if context.broker.metadata.topic(topic) is not None:
            return _response(context, request, 0)
        return _response(context, request, ErrorCode.COORDINATOR_NOT_AVAILABLE) if final else None

    return Deferred(CREATE_WAIT_MS, retry)


def _response(context: RequestContext, request: Any, error: int) -> dict[str, Any] | Work:
    coordinator = _coordinator(context, error)
    if context.api_version < _FIRST_BATCHED_VERSION:
        return {**coordinator}
    if len(request.coordinator_keys) > AT_ONCE:
        return _long_response(request.coordinator_keys, coordinator)
    return _batched([{"key": key, **coordinator} for key in request.coordinator_keys])


def _long_response(keys: Sequence[str], coordinator: dict[str, Any]) -> Work:
    coordinators: list[dict[str, Any]] = []
    yield from each_of(keys, lambda key: coordinators.append({"key": key, **coordinator}))
    return _batched(coordinators)


def _batched(coordinators: list[dict[str, Any]]) -> dict[str, Any]:
    return {"coordinators": coordinators}


def _coordinator(context: RequestContext, error: int) -> dict[str, Any]:
    if error:
        return {
            "error_code": error,
            "error_message": text_of(error),
            "node_id": -1,
            "host": "",
            "port": -1,
        }
    host, port = context.address
    return {
        "error_code": 0,
        "error_message": None,
        "node_id": context.broker.metadata.broker_config.node_id,
        "host": host,
        "port": port,
    }
