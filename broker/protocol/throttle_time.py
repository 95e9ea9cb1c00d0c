"""Where an encoded response has its throttle time, so that one can be put into an answer that is there already.

Pure. Answers come from encoders, templates and caches, none of which knows of throttle times: they write 0.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

from broker.protocol.api_keys import ApiKey, is_flexible, response_header_version
from broker.protocol.error_codes import ErrorCode
from broker.protocol.primitives import Buffer, read_unsigned_varint

#: Behind the size and the correlation id; flexible headers have a byte more.
_BODY: Final = 8
_INT32: Final = struct.Struct(">i")
_EMPTY_TAGS_BYTES: Final = 1

#: The first version that has a throttle time, of the APIs of which that is not every one that is served.
_FIRST_VERSION: Final[Mapping[int, int]] = MappingProxyType(
    {
        ApiKey.LIST_OFFSETS: 2,
        ApiKey.METADATA: 3,
        ApiKey.OFFSET_COMMIT: 3,
        ApiKey.OFFSET_FETCH: 3,
        ApiKey.FIND_COORDINATOR: 1,
        ApiKey.JOIN_GROUP: 2,
        ApiKey.HEARTBEAT: 1,
        ApiKey.LEAVE_GROUP: 1,
        ApiKey.SYNC_GROUP: 1,
        ApiKey.DESCRIBE_GROUPS: 1,
        ApiKey.LIST_GROUPS: 1,
        ApiKey.API_VERSIONS: 1,
    }
)

#: These have none in any version.
_WITHOUT: Final = frozenset(
    {ApiKey.SASL_HANDSHAKE, ApiKey.SASL_AUTHENTICATE, ApiKey.WRITE_TXN_MARKERS, ApiKey.DESCRIBE_QUORUM}
)

#: These end with it, and with no tags.
_LAST: Final = frozenset(
    {
        ApiKey.PRODUCE,
        ApiKey.CREATE_DELEGATION_TOKEN,
        ApiKey.RENEW_DELEGATION_TOKEN,
        ApiKey.EXPIRE_DELEGATION_TOKEN,
        ApiKey.DESCRIBE_DELEGATION_TOKEN,
    }
)

_ERROR_CODE: Final = struct.Struct(">h")
_ERROR_CODE_BYTES: Final = _ERROR_CODE.size
_API_RANGE_BYTES: Final = 6


def throttle_place(api_key: int, version: int, wire: Buffer) -> int:
    """Return where a whole response, from its size on, has its throttle time; -1 if it has none (`E16`)."""
    if api_key in _WITHOUT or version < _FIRST_VERSION.get(api_key, 0):
        return -1
    if api_key in _LAST:
        return len(wire) - _INT32.size - (_EMPTY_TAGS_BYTES if is_flexible(api_key, version) else 0)
    if api_key == ApiKey.API_VERSIONS:
        return _behind_api_ranges(version, wire)
    at = _BODY + response_header_version(api_key, version)
    return at + _ERROR_CODE_BYTES if api_key == ApiKey.OFFSET_DELETE else at


def with_throttle_time(api_key: int, version: int, wire: bytes, throttle_ms: int) -> bytes:
    """Return a response with that throttle time; as it is if it has no place for one."""
    at = throttle_place(api_key, version, wire)
    if at < 0:
        return wire
    return b"".join((wire[:at], throttle_time(throttle_ms), wire[at + _INT32.size :]))


def throttle_time(throttle_ms: int) -> bytes:
    """Return a throttle time as it stands in a response."""
    return _INT32.pack(throttle_ms)


def _behind_api_ranges(version: int, wire: Buffer) -> int:
    at = _BODY + _ERROR_CODE_BYTES
    if _ERROR_CODE.unpack_from(wire, _BODY)[0] == ErrorCode.UNSUPPORTED_VERSION:
        # Version 0, whichever was asked for.
        return -1
    if is_flexible(ApiKey.API_VERSIONS, version):
        count, at = read_unsigned_varint(wire, at)
        return at + (count - 1) * (_API_RANGE_BYTES + _EMPTY_TAGS_BYTES)
    (count,) = _INT32.unpack_from(wire, at)
    return at + _INT32.size + int(count) * _API_RANGE_BYTES
