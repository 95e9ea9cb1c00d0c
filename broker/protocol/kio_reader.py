"""Reads messages by kio's schema into kio's objects, without trusting a byte of them.

Run by handlers, on behalf of `kio_adapter`. kio has a reader of its own, made for clients that trust their
broker: it sets memory aside for whatever count a message claims, which ends the process, and refuses tagged
fields that it does not know, which newer clients may send. Here every count and length is first compared
with the bytes that are there, and unknown tagged fields are skipped. One reader per message class is put
together from the schema and kept. What all arrays of one message may have together is bounded too: an element takes a
byte of the request, and a hundred of memory.
"""

import struct
import sys
import uuid
from collections.abc import Callable
from datetime import timedelta
from functools import cache
from typing import Any, Final, TypeAlias

from broker.errors import InvalidReceive
from broker.protocol.kio_schema import EPOCH, KioErrorCode, SchemaField, fields_of
from broker.protocol.primitives import (
    MALFORMED,
    Buffer,
    check_end,
    read_array_count,
    read_compact_array_count,
    read_compact_nullable_string,
    read_compact_string,
    read_nullable_string,
    read_string,
    read_tagged_fields,
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


class _Elements:
    """How many elements the message that is read may still have. One is read at a time."""

    __slots__ = ("left",)

    def __init__(self) -> None:
        self.left = 0

    def take(self, count: int) -> None:
        """Account for elements that are about to be read. InvalidReceive if they are too many."""
        self.left -= count
        if self.left < 0:
            raise InvalidReceive("more elements in its arrays than a request may have")


_elements = _Elements()


def read_message(message_class: Any, buffer: Buffer, offset: int, end: int, most_elements: int = sys.maxsize) -> Any:
    """Return the `message_class` whose body is [offset, end) of `buffer`.

    InvalidReceive when it is malformed, or its arrays have more elements together than `most_elements`.
    """
    _elements.left = most_elements
    try:
        message, offset = _structure_reader(message_class)(buffer, offset, end)
    except (*MALFORMED, ValueError, OverflowError) as error:
        raise InvalidReceive(f"malformed {message_class.__name__}: {error}") from error
    check_end(offset, end)
    return message


@cache
def _structure_reader(message_class: Any) -> Reader:
    flexible: bool = message_class.__flexible__
    readers: list[tuple[str, Reader]] = []
    tagged: dict[int, tuple[str, Reader]] = {}
    defaults: dict[str, Any] = {}
    for field in fields_of(message_class):
        if field.tag is None:
            readers.append((field.name, _field_reader(field, flexible, nullable=field.is_nullable)))
        else:
            tagged[field.tag] = field.name, _field_reader(field, flexible, nullable=False)
            defaults[field.name] = field.default

    def read(buffer: Buffer, offset: int, end: int) -> tuple[Any, int]:
        values = dict(defaults)
        for name, read_field in readers:
            values[name], offset = read_field(buffer, offset, end)
        if flexible:
            found, offset = read_tagged_fields(buffer, offset, end)
            _elements.take(len(found))
            for tag, position in found.items():
                if tag in tagged:
                    name, read_field = tagged[tag]
                    values[name], _ = read_field(buffer, position, offset)
        return message_class(**values), offset

    return read


def _field_reader(field: SchemaField, flexible: bool, *, nullable: bool) -> Reader:
    """Return the reader of one field. A tagged field is never null: it is left out instead."""
    if field.structure is not None:
        element = _structure_reader(field.structure)
        if nullable and not field.is_array:
            return _nullable_structure(element)
    else:
        element = _primitive_reader(field.kafka_type, flexible, nullable=nullable and not field.is_array)
    return _array_reader(element, flexible, nullable=nullable) if field.is_array else element


def _nullable_structure(element: Reader) -> Reader:
    """Return the reader of a structure behind a byte that is negative for null (KIP-893)."""

    def read(buffer: Buffer, offset: int, end: int) -> tuple[Any, int]:
        return (None, offset + 1) if buffer[offset] >= 0x80 else element(buffer, offset + 1, end)

    return read


def _array_reader(element: Reader, flexible: bool, *, nullable: bool) -> Reader:
    read_count = read_compact_array_count if flexible else read_array_count

    def read(buffer: Buffer, offset: int, end: int) -> tuple[Any, int]:
        count, offset = read_count(buffer, offset, end)
        if count < 0:
            if not nullable:
                raise InvalidReceive("null where an array must be")
            return None, offset
        _elements.take(count)
        values = []
        for _ in range(count):
            value, offset = element(buffer, offset, end)
            check_end(offset, end)
            values.append(value)
        return tuple(values), offset

    return read


def _primitive_reader(kafka_type: str, flexible: bool, *, nullable: bool) -> Reader:
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
