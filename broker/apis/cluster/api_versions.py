"""ApiVersions: what is served, derived from the registry of what is served (``C08``-``C11``), and the features.

A version that is not served is answered before it comes here: its body cannot be parsed.
"""

from __future__ import annotations

from typing import Any, Final

from rotunda.broker.apis.context import BrokerContext
from rotunda.broker.ipc.request import Request
from rotunda.broker.metadata.features import SUPPORTED_FEATURES
from rotunda.broker.protocol import codec
from rotunda.broker.protocol.api_keys import ApiKey
from rotunda.broker.protocol.error_codes import ErrorCode
from rotunda.broker.protocol.headers import is_valid_software

_SOFTWARE_FROM: Final = 3
_ZERO_FEATURE_MINIMUM_FROM: Final = 4


def handle_api_versions(request: Request, broker: BrokerContext, body: Any) -> dict[str, Any]:
    """Return the served APIs and the levels of features (KIP-584).

    INVALID_REQUEST for an unacceptable name of client software (``C09``).
    """
    if request.api_version >= _SOFTWARE_FROM:
        for text in (body.client_software_name, body.client_software_version):
            if not is_valid_software(text):
                return {"error_code": ErrorCode.INVALID_REQUEST}
    # Older clients reject a least level of 0 (KAFKA-17011), so they get 1.
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


def unsupported_version_response(correlation_id: int, least: int, greatest: int) -> bytes:
    """Return the answer to a version that is not served, which any client can read and retry by (`C08`)."""
    response = {
        "error_code": ErrorCode.UNSUPPORTED_VERSION,
        "api_keys": [_served(ApiKey.API_VERSIONS, least, greatest)],
    }
    return codec.encode_response(ApiKey.API_VERSIONS, 0, correlation_id, response)


def is_api_versions_cacheable(response: dict[str, Any]) -> bool:
    """Return whether an answer holds until the metadata change: what is served is the same all the time."""
    return not response["error_code"]


def _served(api_key: int, least: int, greatest: int) -> dict[str, int]:
    return {"api_key": api_key, "min_version": least, "max_version": greatest}
