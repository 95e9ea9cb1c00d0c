"""Writes kio's objects by their schema: the counterpart of `kio_reader`, used on behalf of `kio_adapter`.

One writer per message class is put together from the schema and kept. What is written comes from this program, so a
value of the wrong kind is a bug and raises whatever it raises.
"""

import struct
from collections.abc import Callable
from datetime import datetime
from functools import cache
from typing import Any, Final, TypeAlias

from broker.protocol.kio.kio_primitives import FIXED
from broker.protocol.kio.kio_schema import EPOCH, MILLISECOND, SchemaField, fields_of
from broker.protocol.primitives import INT16, INT32, unsigned_varint_bytes

Writer: TypeAlias = Callable[[Any], bytes]
"""value -> its bytes on the wire."""

_NULL_STRUCTURE: Final = b"\xff"
_STRUCTURE: Final = b"\x01"


def write_message(message: Any) -> bytes:
    """Return the body of a message."""
    return _structure_writer(message.__class__)(message)


@cache
def _structure_writer(message_class: Any) -> Writer:
    flexible: bool = message_class.__flexible__
    plain = []
    tagged = []
    for field in fields_of(message_class):
        if field.tag is None:
            plain.append((field.name, field_writer(field, flexible, nullable=field.is_nullable)))
        else:
            tagged.append((field.tag, field.name, field_writer(field, flexible, nullable=False), field.default))
    tagged.sort(key=lambda each: each[0])

    def write(message: Any) -> bytes:
        parts = [write_field(getattr(message, name)) for name, write_field in plain]
        if flexible:
            parts.append(tagged_fields(message, tagged))
        return b"".join(parts)

    return write


def tagged_fields(message: Any, tagged: list[tuple[int, str, Writer, Any]]) -> bytes:
    """Return the tagged fields that differ from their defaults, in order of tags."""
    parts = []
    for tag, name, write_field, default in tagged:
        value = getattr(message, name)
        if value != default:
            written = write_field(value)
            parts.append(unsigned_varint_bytes(tag) + unsigned_varint_bytes(len(written)) + written)
    return unsigned_varint_bytes(len(parts)) + b"".join(parts)


def field_writer(field: SchemaField, flexible: bool, *, nullable: bool) -> Writer:
    """Return the writer of one field. A tagged field is never null: it is left out instead."""
    if field.structure is not None:
        element = _structure_writer(field.structure)
        if nullable and not field.is_array:
            return lambda value: _NULL_STRUCTURE if value is None else _STRUCTURE + element(value)
    else:
        element = _primitive_writer(field.kafka_type, flexible, nullable=nullable and not field.is_array)
    return _array_writer(element, flexible) if field.is_array else element


def _array_writer(element: Writer, flexible: bool) -> Writer:
    count_bytes = _compact_length if flexible else INT32.pack

    def write(values: Any) -> bytes:
        if values is None:
            return count_bytes(-1)
        return count_bytes(len(values)) + b"".join([element(value) for value in values])

    return write


def _compact_length(length: int) -> bytes:
    return unsigned_varint_bytes(length + 1)


def _primitive_writer(kafka_type: str, flexible: bool, *, nullable: bool) -> Writer:
    if kafka_type == "string":
        return _bytes_writer(_compact_length if flexible else INT16.pack, str.encode, nullable=nullable)
    if kafka_type in {"bytes", "records"}:
        return _bytes_writer(_compact_length if flexible else INT32.pack, bytes, nullable=nullable)
    return _fixed_writer(kafka_type)


def _fixed_writer(kafka_type: str) -> Writer:
    pack = struct.Struct(FIXED[kafka_type]).pack
    if kafka_type == "error_code":
        return lambda value: pack(value.value)
    if kafka_type == "uuid":
        return lambda value: bytes(16) if value is None else value.bytes
    if kafka_type.startswith("timedelta"):
        return lambda value: pack(value // MILLISECOND)
    if kafka_type.startswith("datetime"):
        return lambda value: pack(_milliseconds(value))
    return pack


def _milliseconds(value: datetime | None) -> int:
    return -1 if value is None else (value - EPOCH) // MILLISECOND


def _bytes_writer(length_bytes: Writer, encode: Writer, *, nullable: bool) -> Writer:
    def write(value: Any) -> bytes:
        encoded = encode(value)
        return length_bytes(len(encoded)) + encoded

    if nullable:
        return lambda value: length_bytes(-1) if value is None else write(value)
    return write
