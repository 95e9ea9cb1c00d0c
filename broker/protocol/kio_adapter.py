"""Every API without a hand-tuned codec, in every version, by way of kio's schema classes.

Handlers and the command line use it. kio has one class per message and version; the functions that answer
requests should not know versions at all. So a message to be sent is described by plain values, the way the
newest version would have it: a mapping from Kafka's field names in snake case, structures as mappings,
arrays as lists.

encode_response(ApiKey.CREATE_TOPICS, version, correlation_id, { "throttle_time_ms": 0, "topics": [{"name":
"orders", "error_code": 0, "num_partitions": 3}], })

Fields that the version to be sent does not know are dropped, at any depth; fields left out get the schema's
default, which is zero, empty, or null where the schema gives none. A name that no version knows is a
TypeError: a typo. Error codes are numbers, topic ids 16 bytes, and times and durations milliseconds under
Kafka's name (`timeout_ms`).

A message that was received is kio's object as it is: names without `_ms` and `timedelta` for durations,
`uuid.UUID` or None for ids, and no attribute at all for a field that its version lacks.

kio is imported inside functions only: it costs 190 ms, which the start of the broker cannot spare.
"""

import io
import uuid
from collections.abc import Callable, Mapping, Sequence
from dataclasses import MISSING, fields
from datetime import UTC, datetime, timedelta
from functools import cache
from typing import Any, Final

from broker.errors import InvalidReceive
from broker.protocol.api_keys import request_header_version, response_header_version
from broker.protocol.headers import framed, response_header
from broker.protocol.kio_reader import read_message
from broker.protocol.primitives import (
    INT32,
    MALFORMED,
    Buffer,
    nullable_string_bytes,
    skip_tagged_fields,
)

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_MILLISECOND: Final = timedelta(milliseconds=1)


def decode(api_key: int, version: int, buffer: Buffer, offset: int, end: int) -> Any:
    """Return the request whose body is [offset, end) of `buffer`. InvalidReceive when malformed."""
    return read_message(request_class(api_key, version), buffer, offset, end)


def decode_response(api_key: int, version: int, buffer: Buffer, offset: int, end: int) -> Any:
    """Return the response in [offset, end), which starts with the response header.

    InvalidReceive when malformed.
    """
    offset += 4
    if response_header_version(api_key, version) > 0:
        try:
            offset = skip_tagged_fields(buffer, offset, end)
        except MALFORMED as error:
            raise InvalidReceive(f"malformed response header: {error}") from error
    return read_message(response_class(api_key, version), buffer, offset, end)


def encode_response(api_key: int, version: int, correlation_id: int, values: Mapping[str, Any]) -> bytes:
    """Return the wire bytes of a response, size and header included."""
    entity = build_response(api_key, version, values)
    return framed(response_header(api_key, version, correlation_id) + _write(entity))


def encode_request(api_key: int, version: int, correlation_id: int, client_id: str, values: Mapping[str, Any]) -> bytes:
    """Return the wire bytes of a request, size and header included."""
    head = api_key.to_bytes(2, "big") + version.to_bytes(2, "big") + INT32.pack(correlation_id)
    head += nullable_string_bytes(client_id)
    if request_header_version(api_key, version) > 1:
        head += b"\x00"
    return framed(head + _write(build_request(api_key, version, values)))


def build_response(api_key: int, version: int, values: Mapping[str, Any]) -> Any:
    """Return kio's object for a response. TypeError for a field that no version of it has."""
    return _build(response_class(api_key, version), values, _response_names(api_key))


def build_request(api_key: int, version: int, values: Mapping[str, Any]) -> Any:
    """Return kio's object for a request. TypeError for a field that no version of it has."""
    return _build(request_class(api_key, version), values, _request_names(api_key))


@cache
def request_class(api_key: int, version: int) -> type[Any]:
    """Return kio's class for a request; InvalidReceive when kio knows no such API or version."""
    from kio.index import load_request_schema  # noqa: PLC0415 - lazy, see the module's docstring

    return _load(load_request_schema, api_key, version)


@cache
def response_class(api_key: int, version: int) -> type[Any]:
    """Return kio's class for a response; InvalidReceive when kio knows no such API or version."""
    from kio.index import load_response_schema  # noqa: PLC0415 - lazy, see the module's docstring

    return _load(load_response_schema, api_key, version)


def uuid_bytes(value: uuid.UUID | None) -> bytes:
    """Return the 16 bytes of an id as kio gives it: None stands for the zero id."""
    return bytes(16) if value is None else value.bytes


def milliseconds(value: timedelta) -> int:
    """Return a duration as kio gives it in milliseconds."""
    return value // _MILLISECOND


def _load(load: Callable[[int, int], type[Any]], api_key: int, version: int) -> type[Any]:
    from kio.index import KioIndexError  # noqa: PLC0415 - lazy, see the module's docstring

    try:
        return load(api_key, version)
    except KioIndexError as error:
        raise InvalidReceive(f"no schema for api key {api_key} version {version}") from error


def _write(entity: Any) -> bytes:
    from kio.serial import entity_writer  # noqa: PLC0415 - lazy, see the module's docstring

    buffer = io.BytesIO()
    entity_writer(type(entity))(buffer, entity)
    return buffer.getvalue()


def _build(message_class: Any, values: Mapping[str, Any], known: frozenset[str]) -> Any:
    converters = _converters(message_class)
    arguments = {}
    for name, value in values.items():
        found = converters.get(name)
        if found is not None:
            argument, convert = found
            arguments[argument] = convert(value, known)
        elif name not in known:
            raise TypeError(f"no version of {message_class.__name__} has a field {name!r}")
    return message_class(**_defaults(message_class) | arguments)


_Convert = Callable[[Any, frozenset[str]], Any]


@cache
def _converters(message_class: type[Any]) -> dict[str, tuple[str, _Convert]]:
    """Return, for each name that a field goes by, the name kio gives it and the conversion of its value."""
    found: dict[str, tuple[str, _Convert]] = {}
    for field in fields(message_class):
        convert = _field_converter(field)
        for name in _field_names(field):
            found[name] = field.name, convert
    return found


def _field_names(field: Any) -> tuple[str, ...]:
    """Return kio's name and, for what kio turns into a time or duration, Kafka's name in milliseconds."""
    kafka_type = str(field.metadata.get("kafka_type", ""))
    if kafka_type.startswith(("timedelta", "datetime")):
        return field.name, f"{field.name}_ms"
    return (field.name,)


def _field_converter(field: Any) -> _Convert:
    from kio.serial._introspect import (  # noqa: PLC0415 - lazy, see the module's docstring
        EntityField,
        EntityTupleField,
        classify_field,
        is_optional,
    )

    kind = classify_field(field)
    if isinstance(kind, EntityField | EntityTupleField):
        element = _structure_converter(kind.type_)
    else:
        element = _primitive_converter(str(field.metadata["kafka_type"]), optional=is_optional(field))
    if not kind.is_array:
        return element

    def convert_array(values: Sequence[Any] | None, known: frozenset[str]) -> Any:
        return None if values is None else tuple([element(value, known) for value in values])

    return convert_array


def _structure_converter(message_class: type[Any]) -> _Convert:
    return lambda value, known: _build(message_class, value, known) if isinstance(value, Mapping) else value


def _primitive_converter(kafka_type: str, *, optional: bool) -> _Convert:
    from kio.schema.errors import ErrorCode  # noqa: PLC0415 - lazy, see the module's docstring

    if kafka_type == "error_code":
        return lambda value, _: ErrorCode(value)
    if kafka_type.startswith("timedelta"):
        return lambda value, _: timedelta(milliseconds=value) if isinstance(value, int) else value
    if kafka_type.startswith("datetime"):
        return lambda value, _: _time(value, optional)
    if kafka_type == "uuid":
        return lambda value, _: _uuid(value)
    return lambda value, _: value


def _time(value: int | datetime | None, optional: bool) -> datetime | None:
    """Return kio's value of a time in milliseconds; -1 is None where the schema lets it be."""
    if isinstance(value, int):
        return None if value == -1 and optional else _EPOCH + timedelta(milliseconds=value)
    return value


def _uuid(value: bytes | uuid.UUID | None) -> uuid.UUID | None:
    if isinstance(value, bytes):
        return uuid.UUID(bytes=value) if any(value) else None
    return value


@cache
def _defaults(message_class: type[Any]) -> dict[str, Any]:
    """Return a value for each field that the schema gives none: null, else empty, else zero."""
    from kio.schema.errors import ErrorCode  # noqa: PLC0415 - lazy, as above
    from kio.serial._implicit_defaults import get_implicit_default  # noqa: PLC0415 - lazy, as above
    from kio.serial._introspect import classify_field, is_optional  # noqa: PLC0415 - lazy, as above

    defaults: dict[str, Any] = {}
    for field in fields(message_class):
        if field.default is not MISSING:
            continue
        kind = classify_field(field)
        if kind.is_array:
            defaults[field.name] = None if is_optional(field) else ()
        elif is_optional(field):
            defaults[field.name] = None
        elif kind.type_ is ErrorCode:
            defaults[field.name] = ErrorCode.none
        elif kind.type_ is bool:
            defaults[field.name] = False
        elif hasattr(kind.type_, "__flexible__"):
            defaults[field.name] = kind.type_(**_defaults(kind.type_))
        else:
            defaults[field.name] = get_implicit_default(kind.type_)
    return defaults


@cache
def _request_names(api_key: int) -> frozenset[str]:
    from kio.static.constants import EntityType  # noqa: PLC0415 - lazy, see the module's docstring

    return _names_of_all_versions(api_key, EntityType.request, request_class)


@cache
def _response_names(api_key: int) -> frozenset[str]:
    from kio.static.constants import EntityType  # noqa: PLC0415 - lazy, see the module's docstring

    return _names_of_all_versions(api_key, EntityType.response, response_class)


def _names_of_all_versions(api_key: int, entity_type: Any, class_of: Callable[[int, int], type[Any]]) -> frozenset[str]:
    """Return the field names at any depth of a message in any version: what is not a typo."""
    from kio.schema.index import api_key_map, schema_name_map  # noqa: PLC0415 - lazy, as above

    names: set[str] = set()
    for version, kinds in schema_name_map[api_key_map[api_key]].items():
        if entity_type in kinds:
            _collect_names(class_of(api_key, version), names)
    return frozenset(names)


def _collect_names(message_class: type[Any], names: set[str]) -> None:
    from kio.serial._introspect import classify_field  # noqa: PLC0415 - lazy, see the module's docstring

    for field in fields(message_class):
        names.update(_field_names(field))
        kind = classify_field(field)
        if hasattr(kind.type_, "__flexible__"):
            _collect_names(kind.type_, names)
