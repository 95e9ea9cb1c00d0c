"""Readers of single values by their type in kio's schema: numbers, times, ids, strings and bytes.

Put together once for each field, by `kio_reader`. No length is trusted: each is compared with the bytes that are there.
"""

import struct
import uuid
from collections.abc import Callable
from datetime import timedelta
from typing import Any, Final, TypeAlias

from broker.errors import InvalidReceive
from broker.protocol.kio.kio_schema import EPOCH, KioErrorCode
from broker.protocol.primitives import (
    Buffer,
    read_compact_nullable_string,
    read_compact_string,
    read_nullable_string,
    read_string,
    read_unsigned_varint,
)

Reader: TypeAlias = Callable[[Buffer, int, int], tuple[Any, int]]
"""(buffer, offset, end) -> (value, offset after it); raises InvalidReceive or one of MALFORMED."""

FIXED: Final = {
    "int8": ">b",
    "int16": ">h",
    "int32": ">i",
    "int64": ">q",
    "uint8": ">B",
    "uint16": ">H",
    "uint32": ">I",
    "uint64": ">Q",
    "float64": ">d",
    "bool": ">?",
    "uuid": ">16s",
    "error_code": ">h",
    "timedelta_i32": ">i",
    "timedelta_i64": ">q",
    "datetime_i64": ">q",
}


def primitive_reader(kafka_type: str, flexible: bool, *, nullable: bool) -> Reader:
    """Return what reads a value of one of Kafka's primitive types into kio's value for it."""
    if kafka_type in FIXED:
        return _fixed_reader(struct.Struct(FIXED[kafka_type]), _conversion(kafka_type, nullable))
    if kafka_type == "string":
        if flexible:
            return read_compact_nullable_string if nullable else read_compact_string
        return read_nullable_string if nullable else read_string
    return _bytes_reader(flexible, nullable=nullable)


def _fixed_reader(layout: struct.Struct, convert: Callable[[Any], Any] | None) -> Reader:
    size = layout.size
    unpack = layout.unpack_from
    if convert is None:
        return lambda buffer, offset, _: (unpack(buffer, offset)[0], offset + size)
    return lambda buffer, offset, _: (convert(unpack(buffer, offset)[0]), offset + size)


def _conversion(kafka_type: str, nullable: bool) -> Callable[[Any], Any] | None:
    """Return what makes kio's value of a number on the wire, if it is not the number itself."""
    if kafka_type == "error_code":
        return KioErrorCode
    if kafka_type == "uuid":
        return lambda raw: uuid.UUID(bytes=raw) if any(raw) else None
    if kafka_type.startswith("timedelta"):
        return lambda ms: timedelta(milliseconds=ms)
    if kafka_type.startswith("datetime"):
        return lambda ms: None if ms == -1 and nullable else EPOCH + timedelta(milliseconds=ms)
    return None


def _bytes_reader(flexible: bool, *, nullable: bool) -> Reader:
    def read(buffer: Buffer, offset: int, end: int) -> tuple[bytes | None, int]:
        if flexible:
            length, offset = read_unsigned_varint(buffer, offset)
            length -= 1
        else:
            length = int.from_bytes(buffer[offset : offset + 4], "big", signed=True)
            offset += 4
        if length == -1 and nullable:
            return None, offset
        if length < 0 or length > end - offset:
            raise InvalidReceive(f"{length} bytes where {end - offset} are left")
        return bytes(buffer[offset : offset + length]), offset + length

    return read
