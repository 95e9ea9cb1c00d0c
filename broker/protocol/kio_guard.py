"""Checks the lengths in a message against its schema before kio reads it.

Run by handlers, on the bytes that `kio_adapter` is about to decode. kio's reader believes the counts in a
message and sets memory aside for them: a hostile count ends the process. So every count, length and tag
size is first compared with the bytes that are there, by a check that is built once per message class from
the same schema that kio reads by. kio is imported inside functions only: it costs 190 ms, which the start
of the broker cannot spare.
"""

from collections.abc import Callable
from dataclasses import fields
from functools import cache
from typing import Any, Final, TypeAlias

from broker.errors import InvalidReceive
from broker.protocol.primitives import (
    MALFORMED,
    Buffer,
    check_count,
    check_end,
    read_array_count,
    read_compact_array_count,
    read_unsigned_varint,
)

Check: TypeAlias = Callable[[Buffer, int, int], int]
"""(buffer, offset, end) -> offset after the value; raises InvalidReceive or one of MALFORMED."""

_FIXED_BYTES: Final = {
    "int8": 1,
    "int16": 2,
    "int32": 4,
    "int64": 8,
    "uint8": 1,
    "uint16": 2,
    "uint32": 4,
    "uint64": 8,
    "float64": 8,
    "uuid": 16,
    "bool": 1,
    "error_code": 2,
    "timedelta_i32": 4,
    "timedelta_i64": 8,
    "datetime_i64": 8,
}


def guard(message_class: type, buffer: Buffer, offset: int, end: int) -> None:
    """Return when kio can safely read a `message_class` from [offset, end); else raise InvalidReceive."""
    try:
        check_end(_structure_check(message_class)(buffer, offset, end), end)
    except MALFORMED as error:
        raise InvalidReceive(f"malformed {message_class.__name__}: {error}") from error


@cache
def _structure_check(message_class: Any) -> Check:
    from kio.serial._introspect import get_field_tag  # noqa: PLC0415 - lazy, see the module's docstring

    flexible = message_class.__flexible__
    checks: list[Check] = []
    tagged: dict[int, Check] = {}
    for field in fields(message_class):
        tag = get_field_tag(field)
        if tag is None:
            checks.append(_field_check(field, flexible, nullable=True))
        else:
            tagged[tag] = _field_check(field, flexible, nullable=False)

    def check(buffer: Buffer, offset: int, end: int) -> int:
        for check_field in checks:
            offset = check_field(buffer, offset, end)
        return _check_tags(tagged, buffer, offset, end) if flexible else offset

    return check


def _check_tags(tagged: dict[int, Check], buffer: Buffer, offset: int, end: int) -> int:
    count, offset = read_unsigned_varint(buffer, offset)
    check_count(count, offset, end)
    for _ in range(count):
        tag, offset = read_unsigned_varint(buffer, offset)
        size, offset = read_unsigned_varint(buffer, offset)
        stop = offset + size
        check_end(stop, end)
        check_value = tagged.get(tag)
        if check_value is not None and check_value(buffer, offset, stop) != stop:
            raise InvalidReceive(f"tagged field {tag} does not fill its {size} bytes")
        offset = stop
    return offset


def _field_check(field: Any, flexible: bool, *, nullable: bool) -> Check:
    """Return the check of one field. A tagged field is never nullable: it is left out instead."""
    from kio.serial._introspect import (  # noqa: PLC0415 - lazy, see the module's docstring
        EntityField,
        EntityTupleField,
        classify_field,
        get_schema_field_type,
        is_optional,
    )

    kind = classify_field(field)
    if isinstance(kind, EntityField | EntityTupleField):
        element = _structure_check(kind.type_)
        if isinstance(kind, EntityField):
            return _nullable_structure(element) if nullable and is_optional(field) else element
    else:
        element = _primitive_check(get_schema_field_type(field), flexible)
    return _array_check(element, flexible) if kind.is_array else element


def _nullable_structure(element: Check) -> Check:
    """Return the check of a structure behind a byte that is negative for null (KIP-893)."""

    def check(buffer: Buffer, offset: int, end: int) -> int:
        return offset + 1 if buffer[offset] >= 0x80 else element(buffer, offset + 1, end)

    return check


def _array_check(element: Check, flexible: bool) -> Check:
    read_count = read_compact_array_count if flexible else read_array_count

    def check(buffer: Buffer, offset: int, end: int) -> int:
        count, offset = read_count(buffer, offset, end)
        for _ in range(count):
            offset = element(buffer, offset, end)
            check_end(offset, end)
        return offset

    return check


def _primitive_check(kafka_type: str, flexible: bool) -> Check:
    size = _FIXED_BYTES.get(kafka_type)
    if size is not None:
        return lambda _buffer, offset, _end: offset + size
    if flexible:
        return _check_compact_bytes
    return _check_legacy_string if kafka_type == "string" else _check_legacy_bytes


def _check_compact_bytes(buffer: Buffer, offset: int, end: int) -> int:
    length, offset = read_unsigned_varint(buffer, offset)
    return _after(length - 1, offset, end)


def _check_legacy_string(buffer: Buffer, offset: int, end: int) -> int:
    length = int.from_bytes(buffer[offset : offset + 2], "big", signed=True)
    return _after(length, offset + 2, end)


def _check_legacy_bytes(buffer: Buffer, offset: int, end: int) -> int:
    length = int.from_bytes(buffer[offset : offset + 4], "big", signed=True)
    return _after(length, offset + 4, end)


def _after(length: int, offset: int, end: int) -> int:
    if length < -1:
        raise InvalidReceive(f"length {length}")
    stop = offset + length if length > 0 else offset
    check_end(stop, end)
    return stop
