"""FindCoordinator: the broker itself, on the request's listener, for groups and transactions (``C18``).

The first request for a group, or for a transaction, creates the internal topic for it, and waits for the topic, so that
no client is sent to a coordinator that is not ready. The response for many keys is made in slices.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

from rotunda.broker.apis.context import BrokerContext
from rotunda.broker.ipc.request import Request
from rotunda.broker.protocol.error_codes import ErrorCode, text_of
from rotunda.broker.protocol.routing import GROUP_TOPIC, SHARE_TOPIC, TRANSACTION_TOPIC
from rotunda.broker.scheduling.deferred import Deferred
from rotunda.broker.scheduling.following import after
from rotunda.broker.scheduling.long_responses import AT_ONCE, each_of
from rotunda.broker.scheduling.slices import Work
from rotunda.broker.security.acl.acls import ResourceType

_RESOURCES = {0: ResourceType.GROUP, 1: ResourceType.TRANSACTIONAL_ID}
_TOPICS = {0: GROUP_TOPIC, 1: TRANSACTION_TOPIC}
_FIRST_BATCHED_VERSION = 4
#: The type of keys that are partitions of share groups, the first version with it, and its parts.
_SHARE_PARTITION = 2
_SHARE_VERSION = 6
_PLACE_PARTS = 2
_TOPIC_ID = re.compile(r"[A-Za-z0-9_-]{22}")
_PARTITION = re.compile(r"\d{1,10}", re.ASCII)

#: Most time that a request waits for the internal topic. The client retries after COORDINATOR_NOT_AVAILABLE.
CREATE_WAIT_MS = 5000


def handle_find_coordinator(request: Request, broker: BrokerContext, body: Any) -> dict[str, Any] | Work | Deferred:
    """Return the coordinator of each key; INVALID_REQUEST for an unsupported type of key."""
    key_type = body.key_type
    topic = _TOPICS.get(key_type)
    if key_type == _SHARE_PARTITION and request.api_version >= _SHARE_VERSION:
        return _share_partitions(request, broker, body)
    if topic is None:
        return _response(request, broker, body, ErrorCode.INVALID_REQUEST)
    if broker.metadata.authorizer is not None:
        return _authorized(request, broker, body, _RESOURCES[key_type])
    return _found(request, broker, body, topic)


def _authorized(
    request: Request, broker: BrokerContext, body: Any, resource_type: ResourceType
) -> dict[str, Any] | Work | Deferred:
    """Return the coordinators of the keys that the client may see, and an error for each other."""
    topic = _TOPICS[body.key_type if request.api_version else 0]
    if request.api_version < _FIRST_BATCHED_VERSION:
        rejection = broker.access.rejection(request, resource_type, body.key)
        return _response(request, broker, body, rejection) if rejection else _found(request, broker, body, topic)
    rejections = {key: broker.access.rejection(request, resource_type, key) for key in body.coordinator_keys}
    rejected = [{"key": key, **_coordinator(request, broker, error)} for key, error in rejections.items() if error]
    if not rejected:
        return _found(request, broker, body, topic)
    keys = tuple(key for key in body.coordinator_keys if not rejections[key])
    if not keys:
        return _batched(rejected)
    found = _found(request, broker, body.replaced(coordinator_keys=keys), topic)
    response: dict[str, Any] | Work | Deferred = after(
        found, lambda response: _batched([*response["coordinators"], *rejected])
    )
    return response


def _share_partitions(request: Request, broker: BrokerContext, body: Any) -> dict[str, Any] | Work | Deferred:
    """Return the coordinators of partitions of share groups; an error for each key of another form."""
    if rejection := broker.access.rejection(request, ResourceType.CLUSTER):
        return _response(request, broker, body, rejection)
    keys = tuple(key for key in body.coordinator_keys if _is_share_partition(key))
    invalid = [
        {"key": key, **_coordinator(request, broker, ErrorCode.INVALID_REQUEST)}
        for key in body.coordinator_keys
        if not _is_share_partition(key)
    ]
    if not keys:
        return _batched(invalid)
    found = _found(request, broker, body.replaced(coordinator_keys=keys), SHARE_TOPIC)
    response: dict[str, Any] | Work | Deferred = after(
        found, lambda response: _batched([*response["coordinators"], *invalid])
    )
    return response


def _is_share_partition(key: str) -> bool:
    """Return whether a key is a group, the base64url of a topic id, and a partition, with colons between them."""
    group_id, *place = key.rsplit(":", 2)
    if not group_id or len(place) != _PLACE_PARTS:
        return False
    topic_id, partition = place
    return _TOPIC_ID.fullmatch(topic_id) is not None and _PARTITION.fullmatch(partition) is not None


def _found(request: Request, broker: BrokerContext, body: Any, topic: str) -> dict[str, Any] | Work | Deferred:
    if broker.metadata.topic(topic) is not None:
        return _response(request, broker, body, 0)
    broker.create_topics([topic])

    def retry(final: bool) -> dict[str, Any] | Work | None:
        # Every handler opens its partitions of a topic before it handles another request.
        if broker.metadata.topic(topic) is not None:
            return _response(request, broker, body, 0)
        return _response(request, broker, body, ErrorCode.COORDINATOR_NOT_AVAILABLE) if final else None

    return Deferred(CREATE_WAIT_MS, retry)


def _response(request: Request, broker: BrokerContext, body: Any, error: int) -> dict[str, Any] | Work:
    coordinator = _coordinator(request, broker, error)
    if request.api_version < _FIRST_BATCHED_VERSION:
        return {**coordinator}
    if len(body.coordinator_keys) > AT_ONCE:
        return _long_response(body.coordinator_keys, coordinator)
    return _batched([{"key": key, **coordinator} for key in body.coordinator_keys])


def _long_response(keys: Sequence[str], coordinator: dict[str, Any]) -> Work:
    coordinators: list[dict[str, Any]] = []
    yield from each_of(keys, lambda key: coordinators.append({"key": key, **coordinator}))
    return _batched(coordinators)


def _batched(coordinators: list[dict[str, Any]]) -> dict[str, Any]:
    return {"coordinators": coordinators}


def _coordinator(request: Request, broker: BrokerContext, error: int) -> dict[str, Any]:
    if error:
        return {
            "error_code": error,
            "error_message": text_of(error),
            "node_id": -1,
            "host": "",
            "port": -1,
        }
    host, port = broker.address_for(request)
    return {
        "error_code": 0,
        "error_message": None,
        "node_id": broker.metadata.broker_config.node_id,
        "host": host,
        "port": port,
    }
