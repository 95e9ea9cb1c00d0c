"""ApiVersions: the supported APIs, derived from their registry (``C08``-``C11``), and the features.

An unsupported version of ApiVersions is rejected before this module: its body cannot be parsed.
"""

from __future__ import annotations

from typing import Any, Final

from rotunda.broker.apis.context import BrokerContext
from rotunda.broker.ipc.request import Request
from rotunda.broker.metadata.features import SUPPORTED_FEATURES
from rotunda.broker.protocol import codec
from rotunda.broker.protocol.api_keys import ApiKey
from rotunda.broker.protocol.error_codes import ErrorCode
from rotunda.broker.protocol.headers import NO_NODE, is_valid_api_versions
from rotunda.broker.security.session import ANONYMOUS_USER

_ZERO_FEATURE_MINIMUM_FROM: Final = 4


def handle_api_versions(request: Request, broker: BrokerContext, body: Any) -> dict[str, Any]:
    """Return the supported APIs and the levels of features (KIP-584).

    INVALID_REQUEST for an invalid request (``C09``), REBOOTSTRAP_REQUIRED for another cluster or node (KIP-1242).
    """
    if not is_valid_api_versions(request.api_version, body):
        return {"error_code": ErrorCode.INVALID_REQUEST}
    if _is_for_another(request, broker, body):
        return {"error_code": ErrorCode.REBOOTSTRAP_REQUIRED}
    # Older clients reject a minimum level of 0 (KAFKA-17011), so they get 1.
    least = 0 if request.api_version >= _ZERO_FEATURE_MINIMUM_FROM else 1
    metadata = broker.metadata
    return {
        "error_code": 0,
        "api_keys": [_served(*api) for api in sorted(broker.apis)],
        "supported_features": [
            {"name": each.name, "min_version": max(least, each.least), "max_version": each.greatest}
            for each in SUPPORTED_FEATURES.values()
        ],
        "finalized_features_epoch": metadata.version,
        "finalized_features": [
            {"name": name, "max_version_level": level, "min_version_level": level}
            for name, level in metadata.finalized_features.items()
            if level > 0
        ],
    }


def _is_for_another(request: Request, broker: BrokerContext, body: Any) -> bool:
    """Return whether a client expects another cluster or node here. Before authentication it learns nothing of it."""
    if body.node_id == NO_NODE:
        return False
    listener = broker.listeners[request.listener]
    if listener.protocol.startswith("SASL") and request.session.user == ANONYMOUS_USER:
        return False
    return bool(body.cluster_id != broker.cluster_id or body.node_id != broker.metadata.broker_config.node_id)


def unsupported_version_response(correlation_id: int, least: int, greatest: int) -> bytes:
    """Return the response to an unsupported version, which any client can read to retry (`C08`)."""
    response = {
        "error_code": ErrorCode.UNSUPPORTED_VERSION,
        "api_keys": [_served(ApiKey.API_VERSIONS, least, greatest)],
    }
    return codec.encode_response(ApiKey.API_VERSIONS, 0, correlation_id, response)


def is_api_versions_cacheable(response: dict[str, Any]) -> bool:
    """Return whether a response is valid until the metadata change: the supported APIs never change."""
    return not response["error_code"]


def _served(api_key: int, least: int, greatest: int) -> dict[str, int]:
    return {"api_key": api_key, "min_version": least, "max_version": greatest}
