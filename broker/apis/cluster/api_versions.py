"""ApiVersions: what is served, derived from the registry of what is served (``C08``-``C11``), and the features.

A version that is not served is answered before it comes here: its body cannot be parsed.
"""

from __future__ import annotations

from broker.apis.context import RequestContext
from broker.metadata.features import SUPPORTED_FEATURES
from broker.protocol.error_codes import ErrorCode
from broker.protocol.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse, is_valid_software

#: (name, least, greatest level), as the answer has it.
_SUPPORTED = tuple((feature.name, feature.least, feature.greatest) for feature in SUPPORTED_FEATURES.values())


def handle_api_versions(context: RequestContext, request: ApiVersionsRequest) -> ApiVersionsResponse:
    """Return the served APIs and the levels of features (KIP-584).

    INVALID_REQUEST for an unacceptable name of client software (``C09``).
    """
    for text in (request.client_software_name, request.client_software_version):
        if not is_valid_software(text):
            return ApiVersionsResponse(ErrorCode.INVALID_REQUEST, ())
    metadata = context.broker.metadata
    return ApiVersionsResponse(
        0,
        sorted(context.broker.apis),
        supported_features=_SUPPORTED,
        finalized_features_epoch=metadata.version,
        finalized_features=[(name, level, level) for name, level in metadata.finalized_features.items()],
    )


def is_api_versions_cacheable(response: ApiVersionsResponse) -> bool:
    """Return whether an answer holds until the metadata change: what is served is the same all the time."""
    return not response.error_code
