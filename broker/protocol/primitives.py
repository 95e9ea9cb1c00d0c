"""Kafka's wire types: `read_*(buffer, offset, …) -> (value, offset after it)` and `*_bytes(value) -> bytes`.

Used by the codecs of this package, in any process. The buffer may be far larger than the request (a whole shared
segment), so readers of values with a length have the parameter `end`, the request's end, and never read beyond it.
Fixed-size reads do not: a codec checks once, at its own end, that it stayed inside (`check_end`). Reads past the buffer
itself raise `struct.error` or `IndexError`; each codec turns `MALFORMED` into `InvalidReceive` in one place. Bytes of
strings that are not UTF-8 are read as U+FFFD, as in Kafka.
"""

import struct
from typing import Final, TypeAlias

from rotunda.broker.errors import InvalidReceive

Buffer: TypeAlias = bytes | bytearray | memoryview

MALFORMED: Final = (struct.error, IndexError)
"""Errors of reading invalid bytes besides `InvalidReceive`."""

ZERO_TOPIC_ID: Final = bytes(16)
NULL_LEGACY_STRING: Final = b"\xff\xff"

INT16: Final = struct.Struct(">h")
INT32: Final = struct.Struct(">i")
INT64: Final = struct.Struct(">q")
_unpack_int16 = INT16.unpack_from
_unpack_int32 = INT32.unpack_from
_VARINT_MAX_BYTES: Final = 5


MOST_ELEMENTS: Final = 50_000
"""Maximum of all arrays of a request together, decoded in less than 50 ms."""
NO_LIMIT: Final = 1 << 62
"""Maximum of a message of this program's own, or of one that its bytes bound."""
MOST_TAGGED_FIELDS: Final = 100
"""Maximum of one structure. Kafka's have a handful."""


def check_end(offset: int, end: int) -> None:
    """Raise `InvalidReceive` when reading went past the request's end."""
    if offset > end:
        raise InvalidReceive(f"request ends {offset - end} bytes before its last field")


def read_unsigned_varint(buffer: Buffer, offset: int) -> tuple[int, int]:
    """Return an unsigned 32-bit integer in 1-5 bytes of 7 bits, low bits first."""
    value = buffer[offset]
    offset += 1
    if value < 0x80:
        return value, offset
    value &= 0x7F
    shift = 7
    for _ in range(_VARINT_MAX_BYTES - 1):
        byte = buffer[offset]
        offset += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, offset
        shift += 7
    raise InvalidReceive("unsigned varint longer than 5 bytes")


def read_string(buffer: Buffer, offset: int, end: int) -> tuple[str, int]:
    """Return a string that may not be null, with a two-byte length."""
    text, offset = read_nullable_string(buffer, offset, end)
    if text is None:
        raise InvalidReceive("null where a string must be")
    return text, offset


def read_nullable_string(buffer: Buffer, offset: int, end: int) -> tuple[str | None, int]:
    """Return a string with a two-byte length; -1 is null."""
    (length,) = _unpack_int16(buffer, offset)
    offset += 2
    if length == -1:
        return None, offset
    stop = offset + length
    if length < 0 or stop > end:
        raise InvalidReceive(f"string of {length} bytes where {end - offset} are left")
    return str(buffer[offset:stop], "utf-8", "replace"), stop


def skip_tagged_fields(buffer: Buffer, offset: int, end: int) -> int:
    """Return the offset after a structure's tagged fields."""
    if buffer[offset] == 0:
        return offset + 1
    count, offset = read_unsigned_varint(buffer, offset)
    if count > MOST_TAGGED_FIELDS:
        raise InvalidReceive(f"{count} tagged fields in one structure")
    for _ in range(count):
        _, offset = read_unsigned_varint(buffer, offset)
        size, offset = read_unsigned_varint(buffer, offset)
        offset += size
        check_end(offset, end)
    return offset


def unsigned_varint_bytes(value: int) -> bytes:
    """1-5 bytes of 7 bits, low bits first."""
    if value < 0x80:
        return bytes((value,))
    out = bytearray()
    while value >= 0x80:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def string_bytes(text: str) -> bytes:
    data = text.encode()
    return INT16.pack(len(data)) + data


def nullable_string_bytes(text: str | None) -> bytes:
    """Return a string with a two-byte length, -1 for None."""
    return NULL_LEGACY_STRING if text is None else string_bytes(text)


def compact_string_bytes(text: str) -> bytes:
    data = text.encode()
    return unsigned_varint_bytes(len(data) + 1) + data


def compact_nullable_string_bytes(text: str | None) -> bytes:
    """Return a string with its length + 1 as a varint, 0 for None."""
    return b"\x00" if text is None else compact_string_bytes(text)


def tagged_fields_bytes(fields: list[tuple[int, bytes]]) -> bytes:
    """Return the tagged fields of a structure; `fields` is sorted by tag."""
    if not fields:
        return b"\x00"
    parts = [unsigned_varint_bytes(len(fields))]
    for tag, value in fields:
        parts += (unsigned_varint_bytes(tag), unsigned_varint_bytes(len(value)), value)
    return b"".join(parts)
