"""Heartbeat, versions 0-4: the request that members of groups send most. HOT."""

import struct
from typing import Final, NamedTuple

from broker.errors import InvalidReceive
from broker.protocol.primitives import (
    MALFORMED,
    Buffer,
    check_end,
    read_compact_nullable_string,
    read_compact_string,
    read_nullable_string,
    read_string,
    skip_tagged_fields,
)

FIRST_FLEXIBLE: Final = 4
_THROTTLE_FROM: Final = 1
_INSTANCE_FROM: Final = 3


class HeartbeatRequest(NamedTuple):
    """A request. `instance_id` is None below version 3."""

    group_id: str
    generation: int
    member_id: str
    instance_id: str | None = None


class HeartbeatResponse(NamedTuple):
    """An answer."""

    error_code: int


_unpack_int32 = struct.Struct(">i").unpack_from
_V0 = struct.Struct(">iih")
_V1 = struct.Struct(
    ">"
    "i"  # size
    "i"  # correlation id
    "i"  # throttle_time_ms
    "h"  # error_code
)
_V4 = struct.Struct(">iixihx")
_SIZE_BYTES: Final = 4

ANSWER_BYTES: Final = (_V0.size, _V1.size, _V1.size, _V1.size, _V4.size)
"""How long an answer is, size and header included, by version."""


def parse_heartbeat(buffer: Buffer, version: int, offset: int, end: int) -> HeartbeatRequest:
    """Return the request whose body is [offset, end) of `buffer`. InvalidReceive when malformed."""
    instance_id = None
    try:
        if version >= FIRST_FLEXIBLE:
            group_id, offset = read_compact_string(buffer, offset, end)
            (generation,) = _unpack_int32(buffer, offset)
            member_id, offset = read_compact_string(buffer, offset + 4, end)
            instance_id, offset = read_compact_nullable_string(buffer, offset, end)
            offset = skip_tagged_fields(buffer, offset, end)
        else:
            group_id, offset = read_string(buffer, offset, end)
            (generation,) = _unpack_int32(buffer, offset)
            member_id, offset = read_string(buffer, offset + 4, end)
            if version >= _INSTANCE_FROM:
                instance_id, offset = read_nullable_string(buffer, offset, end)
    except MALFORMED as error:
        raise InvalidReceive(f"malformed Heartbeat: {error}") from error
    check_end(offset, end)
    return HeartbeatRequest(group_id, generation, member_id, instance_id)


def encode_heartbeat_response(version: int, correlation_id: int, response: HeartbeatResponse) -> bytes:
    """Return the answer, size and header included."""
    answer = bytearray(ANSWER_BYTES[version])
    encode_heartbeat_response_into(answer, 0, version, correlation_id, response.error_code)
    return bytes(answer)


def encode_heartbeat_response_into(
    view: memoryview | bytearray, at: int, version: int, correlation_id: int, error_code: int
) -> None:
    """Write the answer, of `ANSWER_BYTES`, where it is to stand. HOT."""
    size = ANSWER_BYTES[version] - _SIZE_BYTES
    if version >= FIRST_FLEXIBLE:
        _V4.pack_into(view, at, size, correlation_id, 0, error_code)
    elif version >= _THROTTLE_FROM:
        _V1.pack_into(view, at, size, correlation_id, 0, error_code)
    else:
        _V0.pack_into(view, at, size, correlation_id, error_code)
