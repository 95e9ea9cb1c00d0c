"""FindCoordinator: the broker itself, on the request's listener, for groups and transactions (``C18``)."""

from __future__ import annotations

from typing import Any

from broker.protocol.error_codes import ErrorCode
from broker.server.request_context import RequestContext

_GROUP, _TRANSACTION = 0, 1
_FIRST_BATCHED_VERSION = 4


def handle_find_coordinator(context: RequestContext, request: Any) -> dict[str, Any]:
    """Return the coordinator of each key; INVALID_REQUEST for a type of key that has none here."""
    key_type = getattr(request, "key_type", _GROUP)
    if context.api_version < _FIRST_BATCHED_VERSION:
        return {"throttle_time_ms": 0, **_coordinator(context, key_type)}
    coordinators = [{"key": key, **_coordinator(context, key_type)} for key in request.coordinator_keys]
    return {"throttle_time_ms": 0, "coordinators": coordinators}


def _coordinator(context: RequestContext, key_type: int) -> dict[str, Any]:
    if key_type not in {_GROUP, _TRANSACTION}:
        return {
            "error_code": ErrorCode.INVALID_REQUEST,
            "error_message": ErrorCode.INVALID_REQUEST.text,
            "node_id": -1,
            "host": "",
            "port": -1,
        }
    listener = context.listener
    return {
        "error_code": 0,
        "error_message": None,
        "node_id": context.broker.config.node_id,
        "host": listener.advertised_host,
        "port": listener.advertised_port,
    }
