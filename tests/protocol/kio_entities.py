"""Strategies for kio's message classes, to compare every codec with kio in every version."""

import io
import sys
import uuid
from dataclasses import fields, is_dataclass
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from typing import Any

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from kio.schema.errors import ErrorCode
from kio.serial import entity_writer
from kio.serial._introspect import EntityField, EntityTupleField, classify_field, get_field_tag, is_optional

few = settings(max_examples=25, deadline=None, suppress_health_check=list(HealthCheck))
"""Enough examples for one version of one message: there are many versions."""

_TEXT = st.text(max_size=12)
_UUIDS = st.uuids().filter(lambda value: value.int != 0)
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_NEVER_NULL = frozenset({"uuid", "datetime_i64"})  # their null is a value: zero, or -1


def _signed(bits: int) -> st.SearchStrategy[int]:
    return st.integers(-(2 ** (bits - 1)), 2 ** (bits - 1) - 1)


_PRIMITIVES: dict[str, st.SearchStrategy[Any]] = {
    "int8": _signed(8),
    "int16": _signed(16),
    "int32": _signed(32),
    "int64": _signed(64),
    "uint16": st.integers(0, 2**16 - 1),
    "float64": st.floats(allow_nan=False),
    "string": _TEXT,
    "bytes": st.binary(max_size=40),
    "records": st.binary(max_size=200),
    "uuid": st.none() | _UUIDS,
    "bool": st.booleans(),
    "error_code": st.sampled_from(ErrorCode),
    "timedelta_i32": _signed(32).map(lambda ms: timedelta(milliseconds=ms)),
    "timedelta_i64": st.integers(-(2**40), 2**40).map(lambda ms: timedelta(milliseconds=ms)),
    "datetime_i64": st.none() | st.integers(0, 2**42).map(lambda ms: _EPOCH + timedelta(milliseconds=ms)),
}


def entities(
    message_class: type[Any], *, left_out: frozenset[str] = frozenset(), not_null: frozenset[str] = frozenset()
) -> st.SearchStrategy[Any]:
    """Return a strategy for objects of a kio class.

    At any depth, fields in `left_out` keep their default and fields in `not_null` are never null.
    """
    values = {
        field.name: _values(field, left_out, not_null) for field in fields(message_class) if field.name not in left_out
    }
    return st.builds(message_class, **values)


def _values(field: Any, left_out: frozenset[str], not_null: frozenset[str]) -> st.SearchStrategy[Any]:
    kind = classify_field(field)
    if isinstance(kind, EntityField | EntityTupleField):
        strategy = entities(kind.type_, left_out=left_out, not_null=not_null)
        kafka_type = ""
    else:
        kafka_type = field.metadata["kafka_type"]
        strategy = _PRIMITIVES[kafka_type]
    if kafka_type == "datetime_i64" and not is_optional(field):
        strategy = strategy.filter(lambda value: value is not None)
    if kind.is_array:
        strategy = st.lists(strategy, max_size=2).map(tuple)
    nullable = is_optional(field) and (kind.is_array or kafka_type not in _NEVER_NULL)
    if field.name in not_null or get_field_tag(field) is not None:
        return strategy
    return st.none() | strategy if nullable else strategy


def kio_bytes(entity: Any) -> bytes:
    """Return a kio object's body on the wire."""
    buffer = io.BytesIO()
    entity_writer(type(entity))(buffer, entity)
    return buffer.getvalue()


def id_bytes(value: uuid.UUID | None) -> bytes:
    """Return the 16 bytes of an id; None is the zero id."""
    return bytes(16) if value is None else value.bytes


def in_ms(value: timedelta) -> int:
    """Return a duration in milliseconds."""
    return value // timedelta(milliseconds=1)


def module_of(message_class: type[Any]) -> Any:
    """Return the module of a kio class, where the classes of its nested structures are."""
    return sys.modules[message_class.__module__]


def topics_are_distinct(topics: tuple[Any, ...], partitions: str) -> bool:
    """Return whether no topic is empty and no two neighbours are equal: a flat list of parts can express only that."""
    names = [(getattr(topic, "name", None), getattr(topic, "topic_id", None)) for topic in topics]
    return all(getattr(topic, partitions) for topic in topics) and all(a != b for a, b in pairwise(names))


def framed_with(header_tail: bytes, correlation_id: int, body: bytes) -> bytes:
    """Return a response on the wire: size, correlation id, the rest of the header, body."""
    message = correlation_id.to_bytes(4, "big", signed=True) + header_tail + body
    return len(message).to_bytes(4, "big") + message


def described(entity: Any) -> dict[str, Any]:
    """Return a kio object in the plain values with which handlers describe a response, under Kafka's names."""
    values = {}
    for field in fields(entity):
        value = getattr(entity, field.name)
        values[_kafka_name(field)] = tuple(map(_plain, value)) if isinstance(value, tuple) else _plain(value)
    return values


def _kafka_name(field: Any) -> str:
    kafka_type = field.metadata.get("kafka_type", "")
    return f"{field.name}_ms" if kafka_type.startswith(("timedelta", "datetime")) else field.name


def _plain(value: Any) -> Any:
    if is_dataclass(value):
        return described(value)
    if isinstance(value, timedelta):
        return in_ms(value)
    if isinstance(value, datetime):
        return (value - _EPOCH) // timedelta(milliseconds=1)
    if isinstance(value, ErrorCode):
        return int(value)
    return value.bytes if isinstance(value, uuid.UUID) else value
