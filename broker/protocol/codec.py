"""Requests and responses of every API in every version, framed, by the compiled readers and writers.

Used by handlers, the client, the command line and tests. A message to write is an instance of its class, or a mapping
from Kafka's field names in snake case to plain values, in the form of the newest version:

    encode_response(ApiKey.CREATE_TOPICS, version, correlation_id, {"topics": [{"name": "orders", "error_code": 0}]})

Fields that the version lacks are dropped, omitted fields have Kafka's default, and null if Kafka has none for a
nullable field. Error codes are numbers, ids 16 bytes, times and durations milliseconds. A decoded message is an object
with the same names; a field that its version lacks has its default.
"""

from __future__ import annotations

from functools import cache
from typing import Any

from rotunda.broker.errors import InvalidReceive
from rotunda.broker.protocol.api_keys import response_header_version
from rotunda.broker.protocol.headers import framed, request_header, response_header
from rotunda.broker.protocol.primitives import INT32, MALFORMED, MOST_ELEMENTS, NO_LIMIT, Buffer, skip_tagged_fields
from rotunda.broker.protocol.schema.definitions import MessageDefinition, definition
from rotunda.broker.protocol.schema.marks import VARYING
from rotunda.broker.protocol.schema.reading import Read, make_reader
from rotunda.broker.protocol.schema.table import APIS
from rotunda.broker.protocol.schema.writing import Write, WritePieces, make_pieces_writer, make_writer


@cache
def reader(name: str, version: int, own_fields: str = "") -> Read:
    """Return the function that reads a version of a message. InvalidReceive if the version does not exist."""
    return make_reader(_checked(name, version, own_fields), version)


@cache
def writer(name: str, version: int, own_fields: str = "") -> Write:
    """Return the function that writes a version of a message. InvalidReceive if the version does not exist."""
    return make_writer(_checked(name, version, own_fields), version)


def read(name: str, version: int, buffer: Buffer, offset: int, end: int, most_elements: int = NO_LIMIT) -> Any:
    """Decode the message in [offset, end) of `buffer`. Raises InvalidReceive."""
    return reader(name, version)(buffer, offset, end, most_elements)


def write(name: str, version: int, values: Any) -> bytes:
    """Return the bytes of a message from its value or from a mapping."""
    return writer(name, version)(values)


def _checked(name: str, version: int, own_fields: str = "") -> MessageDefinition:
    try:
        found = definition(name, own_fields)
    except KeyError as error:
        raise InvalidReceive(f"no message {name}") from error
    if version not in found.versions:
        raise InvalidReceive(f"no version {version} of {name}")
    return found


def decode(api_key: int, version: int, buffer: Buffer, offset: int, end: int) -> Any:
    """Decode the request body in [offset, end) of `buffer`. Raises InvalidReceive."""
    return _request_reader(api_key, version)(buffer, offset, end, MOST_ELEMENTS)


def decode_and_locate(
    api_key: int, version: int, buffer: Buffer, offset: int, end: int
) -> tuple[Any, list[tuple[int, str]]]:
    """Return the result of `decode`, and (offset in `buffer`, `struct` format) of each varying field."""
    found: tuple[Any, list[tuple[int, str]]] = _locator(api_key, version)(buffer, offset, end, MOST_ELEMENTS)
    return found


def decode_in_place(api_key: int, version: int, buffer: Buffer, offset: int, end: int) -> Any:
    """Return the result of `decode`, whose records are (offset in `buffer`, size), and (offset, -1) if null. HOT."""
    return _in_place_reader(api_key, version)(buffer, offset, end, MOST_ELEMENTS)


def decode_body(api_key: int, version: int, buffer: Buffer, offset: int, end: int) -> Any:
    """Decode the response body in [offset, end) of `buffer`. Raises InvalidReceive."""
    return response_reader(api_key, version)(buffer, offset, end, NO_LIMIT)


def decode_response(api_key: int, version: int, buffer: Buffer, offset: int, end: int) -> Any:
    """Return the response in [offset, end), which starts with the response header. Raises InvalidReceive."""
    offset += 4
    if response_header_version(api_key, version) > 0:
        try:
            offset = skip_tagged_fields(buffer, offset, end)
        except MALFORMED as error:
            raise InvalidReceive(f"malformed response header: {error}") from error
    return decode_body(api_key, version, buffer, offset, end)


def encode_response(api_key: int, version: int, correlation_id: int, values: Any) -> bytes:
    """Return the wire bytes of a response, size and header included. TypeError for an unknown name."""
    return framed(response_header(api_key, version, correlation_id) + _response_writer(api_key, version)(values))


class RecordsGap:
    """The place of the records of a partition, which the processor sends from the log files."""

    __slots__ = ("_size_bytes",)

    def __init__(self, size_bytes: int) -> None:
        self._size_bytes = size_bytes

    def __len__(self) -> int:
        return self._size_bytes


def encode_around_records(api_key: int, version: int, correlation_id: int, values: Any) -> list[bytes]:
    """Return the wire bytes of a response before, between and after its gaps of records that are not empty."""
    head = response_header(api_key, version, correlation_id)
    body = _response_pieces_writer(api_key, version)(values)
    chunks = [[INT32.pack(len(head) + sum(map(len, body))), head]]
    for piece in body:
        if isinstance(piece, RecordsGap):
            chunks.append([])
        else:
            chunks[-1].append(piece)
    return [b"".join(chunk) for chunk in chunks]


def encode_request(api_key: int, version: int, correlation_id: int, client_id: str, values: Any) -> bytes:
    """Return the wire bytes of a request, size and header included. TypeError for an unknown name."""
    head = request_header(api_key, version, correlation_id, client_id)
    return framed(head + _request_writer(api_key, version)(values))


@cache
def _request_reader(api_key: int, version: int) -> Read:
    return reader(f"{_api(api_key)}Request", version)


@cache
def _locator(api_key: int, version: int) -> Read:
    return make_reader(_checked(f"{_api(api_key)}Request", version), version, VARYING[api_key])


@cache
def _in_place_reader(api_key: int, version: int) -> Read:
    return make_reader(_checked(f"{_api(api_key)}Request", version), version, in_place=True)


@cache
def response_reader(api_key: int, version: int) -> Read:
    """Return the function that reads a response. InvalidReceive if the version does not exist."""
    return reader(f"{_api(api_key)}Response", version)


@cache
def _request_writer(api_key: int, version: int) -> Write:
    return writer(f"{_api(api_key)}Request", version)


@cache
def _response_writer(api_key: int, version: int) -> Write:
    return writer(f"{_api(api_key)}Response", version)


@cache
def _response_pieces_writer(api_key: int, version: int) -> WritePieces:
    return make_pieces_writer(_checked(f"{_api(api_key)}Response", version), version)


def _api(api_key: int) -> str:
    name = APIS.get(api_key)
    if name is None:
        raise InvalidReceive(f"no schema for API key {api_key}")
    return name
