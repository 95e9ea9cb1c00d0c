"""ApiVersions, versions 0-4: the first request on nearly every connection (`C08`, `C09`, `C10`).

What is advertised is not decided here: the caller brings the list.
"""

import re
import struct
from collections.abc import Sequence
from typing import Final, NamedTuple

from broker.errors import InvalidReceive
from broker.protocol.api_keys import ApiKey
from broker.protocol.primitives import (
    INT64,
    MALFORMED,
    Buffer,
    check_end,
    compact_string_bytes,
    read_compact_string,
    skip_tagged_fields,
    tagged_fields_bytes,
    unsigned_varint_bytes,
)

FIRST_FLEXIBLE: Final = 3
UNKNOWN_SOFTWARE: Final = "unknown"
_UNSUPPORTED_VERSION: Final = 35
_ZERO_FEATURE_MINIMUM_FROM: Final = 4
_SUPPORTED_FEATURES_TAG: Final = 0
_FINALIZED_EPOCH_TAG: Final = 1
_FINALIZED_FEATURES_TAG: Final = 2
_ZK_MIGRATION_READY_TAG: Final = 3
_SOFTWARE: Final = re.compile(r"[a-zA-Z0-9](?:[a-zA-Z0-9\-.]*[a-zA-Z0-9])?")


class ApiVersionsRequest(NamedTuple):
    """A request; both texts are "unknown" below version 3."""

    client_software_name: str
    client_software_version: str


class ApiVersionsResponse(NamedTuple):
    """An answer.

    `api_keys` are (key, least, greatest version), `supported_features` (name, least, greatest level) and
    `finalized_features` (name, greatest, least level), the order in which Kafka writes each.
    """

    error_code: int
    api_keys: Sequence[tuple[int, int, int]]
    throttle_ms: int = 0
    supported_features: Sequence[tuple[str, int, int]] = ()
    finalized_features_epoch: int = -1
    finalized_features: Sequence[tuple[str, int, int]] = ()
    zk_migration_ready: bool = False


_pack_correlation_and_error = struct.Struct(">ih").pack
_pack_int32 = struct.Struct(">i").pack
_pack_range = struct.Struct(
    ">"
    "h"  # api_key
    "h"  # min_version
    "h"  # max_version
).pack
_pack_levels = struct.Struct(">hh").pack


def parse_api_versions(buffer: Buffer, version: int, offset: int, end: int) -> ApiVersionsRequest:
    """Return the request whose body is [offset, end) of `buffer`. InvalidReceive when malformed."""
    if version < FIRST_FLEXIBLE:
        return ApiVersionsRequest(UNKNOWN_SOFTWARE, UNKNOWN_SOFTWARE)
    try:
        name, offset = read_compact_string(buffer, offset, end)
        software_version, offset = read_compact_string(buffer, offset, end)
        offset = skip_tagged_fields(buffer, offset, end)
    except MALFORMED as error:
        raise InvalidReceive(f"malformed ApiVersions: {error}") from error
    check_end(offset, end)
    return ApiVersionsRequest(name, software_version)


def is_valid_software(text: str) -> bool:
    """Whether a client software name or version is one that may be shown and counted (`C09`)."""
    return _SOFTWARE.fullmatch(text) is not None


def encode_api_versions_response(version: int, correlation_id: int, response: ApiVersionsResponse) -> bytes:
    """Return the answer, size and header included. Its header is version 0 whatever the version (`C06`)."""
    ranges = response.api_keys
    head = _pack_correlation_and_error(correlation_id, response.error_code)
    if version >= FIRST_FLEXIBLE:
        packed = b"".join([_pack_range(*entry) + b"\x00" for entry in ranges])
        head += unsigned_varint_bytes(len(ranges) + 1) + packed
    else:
        head += _pack_int32(len(ranges)) + b"".join([_pack_range(*entry) for entry in ranges])
    if version >= 1:
        head += _pack_int32(response.throttle_ms)
    if version >= FIRST_FLEXIBLE:
        head += _feature_tags(version, response)
    return _pack_int32(len(head)) + head


def unsupported_version_response(correlation_id: int, min_version: int, max_version: int) -> bytes:
    """Return the answer to a version that is not served, which any client can read and retry by (`C08`)."""
    served = ((int(ApiKey.API_VERSIONS), min_version, max_version),)
    return encode_api_versions_response(0, correlation_id, ApiVersionsResponse(_UNSUPPORTED_VERSION, served))


def _feature_tags(version: int, response: ApiVersionsResponse) -> bytes:
    tags = []
    if response.supported_features:
        # Older clients reject a least level of 0 (KAFKA-17011), so they get 1.
        least = 0 if version >= _ZERO_FEATURE_MINIMUM_FROM else 1
        levels = [(name, max(low, least), high) for name, low, high in response.supported_features]
        tags.append((_SUPPORTED_FEATURES_TAG, _features_bytes(levels)))
    if response.finalized_features_epoch != -1:
        tags.append((_FINALIZED_EPOCH_TAG, INT64.pack(response.finalized_features_epoch)))
    finalized = [entry for entry in response.finalized_features if entry[1] > 0]
    if finalized:
        tags.append((_FINALIZED_FEATURES_TAG, _features_bytes(finalized)))
    if response.zk_migration_ready:
        tags.append((_ZK_MIGRATION_READY_TAG, b"\x01"))
    return tagged_fields_bytes(tags)


def _features_bytes(features: Sequence[tuple[str, int, int]]) -> bytes:
    packed = [compact_string_bytes(name) + _pack_levels(one, other) + b"\x00" for name, one, other in features]
    return unsigned_varint_bytes(len(features) + 1) + b"".join(packed)
