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
"""

import uuid
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime, timedelta
from functools import cache, partial
from typing import Any

from broker.errors import InvalidReceive
from broker.protocol.api_keys import response_header_version
from broker.protocol.headers import framed, request_header, response_header
from broker.protocol.kio.kio_reader import read_message, read_message_in_steps
from broker.protocol.kio.kio_schema import (
    EPOCH,
    MILLISECOND,
    KioErrorCode,
    SchemaField,
    described_names,
    fields_of,
    is_request_name,
    is_response_name,
    request_class,
    response_class,
)
from broker.protocol.kio.kio_writer import write_message
from broker.protocol.primitives import (
    MALFORMED,
    MOST_ELEMENTS,
    Buffer,
    skip_tagged_fields,
)
from broker.protocol.steps import Steps

IsName = Callable[[str], bool]
"""Whether a field of the message goes by that name in some version, if not in the one to be sent."""


def decode(api_key: int, version: int, buffer: Buffer, offset: int, end: int) -> Any:
    """Return the request whose body is [offset, end) of `buffer`. InvalidReceive when malformed."""
    return read_message(request_class(api_key, version), buffer, offset, end, MOST_ELEMENTS)


def decode_in_steps(api_key: int, version: int, buffer: Buffer, offset: int, end: int) -> Steps[Any]:
    """Return what `decode` returns, some elements at a time. Raises InvalidReceive."""
    return read_message_in_steps(request_class(api_key, version), buffer, offset, end, MOST_ELEMENTS)


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
    return framed(response_header(api_key, version, correlation_id) + write_message(entity))


def encode_request(api_key: int, version: int, correlation_id: int, client_id: str, values: Mapping[str, Any]) -> bytes:
    """Return the wire bytes of a request, size and header included."""
    head = request_header(api_key, version, correlation_id, client_id)
    return framed(head + write_message(build_request(api_key, version, values)))


def build_response(api_key: int, version: int, values: Mapping[str, Any]) -> Any:
    """Return kio's object for a response. TypeError for a field that no version of it has."""
    return build(response_class(api_key, version), values, partial(is_response_name, api_key))


def build_request(api_key: int, version: int, values: Mapping[str, Any]) -> Any:
    """Return kio's object for a request. TypeError for a field that no version of it has."""
    return build(request_class(api_key, version), values, partial(is_request_name, api_key))


def uuid_bytes(value: uuid.UUID | None) -> bytes:
    """Return the 16 bytes of an id as kio gives it: None stands for the zero id."""
    return bytes(16) if value is None else value.bytes


def milliseconds(value: timedelta) -> int:
    """Return a duration as kio gives it in milliseconds."""
    return value // MILLISECOND


def build(message_class: Any, values: Mapping[str, Any], is_name: IsName) -> Any:
    """Return a message, or a structure in one, from plain values. TypeError for a name that is not ``is_name``."""
    converters = converters_of(message_class)
    arguments = {}
    for name, value in values.items():
        found = converters.get(name)
        if found is not None:
            argument, convert = found
            arguments[argument] = convert(value, is_name)
        elif not is_name(name):
            raise TypeError(f"no version of {message_class.__name__} has a field {name!r}")
    return message_class(**defaults_of(message_class) | arguments)


Convert = Callable[[Any, IsName], Any]


@cache
def converters_of(message_class: Any) -> dict[str, tuple[str, Convert]]:
    """Return, for each name that a field goes by, the name kio gives it and the conversion of its value."""
    found: dict[str, tuple[str, Convert]] = {}
    for field in fields_of(message_class):
        convert = _field_converter(field)
        for name in described_names(field):
            found[name] = field.name, convert
    return found


def _field_converter(field: SchemaField) -> Convert:
    if field.structure is not None:
        element = _structure_converter(field.structure)
    else:
        element = _primitive_converter(field.kafka_type, optional=field.is_nullable)
    if not field.is_array:
        return element

    def convert_array(values: Sequence[Any] | None, is_name: IsName) -> Any:
        return None if values is None else tuple([element(value, is_name) for value in values])

    return convert_array


def _structure_converter(message_class: Any) -> Convert:
    return lambda value, is_name: build(message_class, value, is_name) if isinstance(value, Mapping) else value


def _primitive_converter(kafka_type: str, *, optional: bool) -> Convert:
    if kafka_type == "error_code":
        return lambda value, _: KioErrorCode(value)
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
        return None if value == -1 and optional else EPOCH + timedelta(milliseconds=value)
    return value


def _uuid(value: bytes | uuid.UUID | None) -> uuid.UUID | None:
    if isinstance(value, bytes):
        return uuid.UUID(bytes=value) if any(value) else None
    return value


@cache
def defaults_of(message_class: Any) -> dict[str, Any]:
    """Return a value for each field."""
    return {field.name: field.default for field in fields_of(message_class)}
