"""The position of the throttle time in an encoded response, so that it can be written into a finished response.

Pure. Responses are made by encoders, templates and caches, none of which knows of throttle times: they write 0.
"""

from __future__ import annotations

import struct
from functools import cache
from typing import Final, NamedTuple

from rotunda.broker.protocol.api_keys import ApiKey, is_flexible, response_header_version
from rotunda.broker.protocol.error_codes import ErrorCode
from rotunda.broker.protocol.primitives import Buffer, read_unsigned_varint
from rotunda.broker.protocol.schema.definitions import Field, response
from rotunda.broker.protocol.schema.source import FIXED

#: After the size and the correlation id; flexible headers have a byte more.
_BODY: Final = 8
_INT16: Final = struct.Struct(">h")
_INT32: Final = struct.Struct(">i")
_EMPTY_TAGS_BYTES: Final = 1
_FIELD: Final = "throttle_time_ms"


class _Place(NamedTuple):
    """The offset of the throttle time: after an array if its elements have a size, from the end if it is negative."""

    offset: int
    element_bytes: int = 0


def throttle_place(api_key: int, version: int, wire: Buffer) -> int:
    """Return where a whole response, from its size on, has its throttle time; -1 if it has none (`E16`)."""
    if api_key == ApiKey.API_VERSIONS and _INT16.unpack_from(wire, _BODY)[0] == ErrorCode.UNSUPPORTED_VERSION:
        # Version 0, whatever the version of the request.
        return -1
    place = _place(api_key, version)
    if place is None:
        return -1
    at, element_bytes = place
    if element_bytes:
        if is_flexible(api_key, version):
            count, at = read_unsigned_varint(wire, at)
            return at + (count - 1) * element_bytes
        return at + _INT32.size + int(_INT32.unpack_from(wire, at)[0]) * element_bytes
    return at if at >= 0 else len(wire) + at


def with_throttle_time(api_key: int, version: int, wire: bytes, throttle_ms: int) -> bytes:
    """Return a response with that throttle time; as it is if it has no place for one."""
    at = throttle_place(api_key, version, wire)
    if at < 0:
        return wire
    return b"".join((wire[:at], throttle_time(throttle_ms), wire[at + _INT32.size :]))


def throttle_time(throttle_ms: int) -> bytes:
    return _INT32.pack(throttle_ms)


@cache
def _place(api_key: int, version: int) -> _Place | None:
    fields = [each for each in response(api_key).structure.fields if version in each.versions and each.tag is None]
    index = next((number for number, each in enumerate(fields) if each.name == _FIELD), None)
    if index is None:
        return None
    tags_bytes = _EMPTY_TAGS_BYTES if is_flexible(api_key, version) else 0
    offset = _BODY + response_header_version(api_key, version)
    for field in fields[:index]:
        if not field.is_array and field.kind in FIXED:
            offset += _fixed_bytes([field])
            continue
        inner = [each for each in field.structure.fields if version in each.versions] if field.structure else []
        if field is fields[index - 1] and inner and all(each.kind in FIXED for each in inner):
            return _Place(offset, _fixed_bytes(inner) + tags_bytes)
        # No tagged field is written after it.
        return _Place(-_fixed_bytes(fields[index:]) - tags_bytes)
    return _Place(offset)


def _fixed_bytes(fields: list[Field]) -> int:
    return struct.calcsize(">" + "".join([FIXED[each.kind] for each in fields]))
