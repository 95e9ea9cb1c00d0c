"""SaslHandshake 0-1 and SaslAuthenticate 0-2: what a processor reads and writes before it knows its client.

By hand, because processors do not load the schemas.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import Final

from broker.errors import InvalidReceive
from broker.protocol.api_keys import ApiKey
from broker.protocol.headers import framed, response_header
from broker.protocol.primitives import (
    MALFORMED,
    Buffer,
    check_end,
    compact_nullable_string_bytes,
    nullable_string_bytes,
    read_string,
    read_unsigned_varint,
    skip_tagged_fields,
    string_bytes,
    unsigned_varint_bytes,
)

HANDSHAKE_VERSIONS: Final = range(2)
AUTHENTICATE_VERSIONS: Final = range(3)
_FLEXIBLE_FROM: Final = 2
_LIFETIME_FROM: Final = 1

_HANDSHAKE, _AUTHENTICATE = int(ApiKey.SASL_HANDSHAKE), int(ApiKey.SASL_AUTHENTICATE)
_INT32 = struct.Struct(">i")


def parse_handshake(buffer: Buffer, offset: int, end: int) -> str:
    """Return the mechanism that a SaslHandshake asks for. InvalidReceive when malformed."""
    try:
        mechanism, offset = read_string(buffer, offset, end)
    except MALFORMED as error:
        raise InvalidReceive(f"malformed SaslHandshake: {error}") from error
    check_end(offset, end)
    return mechanism


def parse_authenticate(buffer: Buffer, version: int, offset: int, end: int) -> bytes:
    """Return the token in a SaslAuthenticate. InvalidReceive when malformed."""
    try:
        if version >= _FLEXIBLE_FROM:
            length, offset = read_unsigned_varint(buffer, offset)
            length -= 1
        else:
            (length,) = _INT32.unpack_from(buffer, offset)
            offset += _INT32.size
        if not 0 <= length <= end - offset:
            raise InvalidReceive(f"malformed SaslAuthenticate: a token of {length} bytes in {end - offset}")
        token = bytes(buffer[offset : offset + length])
        offset += length
        if version >= _FLEXIBLE_FROM:
            offset = skip_tagged_fields(buffer, offset, end)
    except MALFORMED as error:
        raise InvalidReceive(f"malformed SaslAuthenticate: {error}") from error
    check_end(offset, end)
    return token


def handshake_response(version: int, correlation_id: int, error_code: int, mechanisms: Sequence[str]) -> bytes:
    """Return the answer to a SaslHandshake, size and header included."""
    body = struct.pack(">hi", error_code, len(mechanisms)) + b"".join(map(string_bytes, mechanisms))
    return framed(response_header(_HANDSHAKE, version, correlation_id) + body)


def authenticate_response(
    version: int, correlation_id: int, error_code: int, message: str | None, token: bytes, lifetime_ms: int
) -> bytes:
    """Return the answer to a SaslAuthenticate, size and header included."""
    is_flexible = version >= _FLEXIBLE_FROM
    body = struct.pack(">h", error_code)
    if is_flexible:
        body += compact_nullable_string_bytes(message) + unsigned_varint_bytes(len(token) + 1) + token
    else:
        body += nullable_string_bytes(message) + _INT32.pack(len(token)) + token
    if version >= _LIFETIME_FROM:
        body += struct.pack(">q", lifetime_ms)
    if is_flexible:
        body += b"\x00"
    return framed(response_header(_AUTHENTICATE, version, correlation_id) + body)
