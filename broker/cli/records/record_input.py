"""The input of `rotunda produce`: lines, whole files or JSON lines as records to send, each with its place.

Bytes are unchanged: only JSON is decoded. Knows no producer.
"""

from __future__ import annotations

import base64
import binascii
import json
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO, Final, NamedTuple

from rotunda.broker.errors import RotundaError

_CHUNK_BYTES: Final = 1 << 16
_FIELDS: Final = frozenset({"topic", "partition", "offset", "timestamp", "timestamp_type", "key", "value", "headers"})
_MOST_SHOWN: Final = 60
_HEADER_PARTS: Final = 2

Header = tuple[str, bytes | None]


class InputError(RotundaError):
    """Invalid input; the text has its place and the expected format."""


class Outgoing(NamedTuple):
    """A record to send. `place` is its place in the input; None is an unspecified field."""

    place: str
    topic: str | None
    value: bytes | None
    key: bytes | None = None
    headers: tuple[Header, ...] = ()
    partition: int | None = None
    timestamp_ms: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Shape:
    """The conversion of a line to a record. `nulls` are the texts for null."""

    delimiter: bytes = b"\n"
    key_separator: bytes | None = None
    key: bytes | None = None
    headers: tuple[Header, ...] = ()
    nulls: frozenset[bytes] = frozenset()
    is_json: bool = False


def records_of_lines(source: BinaryIO, name: str, shape: Shape) -> Iterator[Outgoing]:
    """Yield a record for each line. Raises InputError for an invalid one."""
    read: Callable[[str, bytes], Outgoing] = _reader(shape)
    for number, line in enumerate(_pieces(source, shape.delimiter), start=1):
        if shape.is_json and not line.strip():
            continue
        yield read(f"{name}, line {number}", line)


def records_of_files(paths: Iterable[Path], shape: Shape) -> Iterator[Outgoing]:
    """Yield a record for each file, whose value is all of its bytes. Raises InputError for an unreadable one."""
    for path in paths:
        try:
            value = path.read_bytes()
        except OSError as failure:
            raise InputError(f"cannot read {path}: {failure.strerror}") from failure
        yield Outgoing(str(path), None, _unless_null(value, shape), shape.key, shape.headers)


def _pieces(source: BinaryIO, delimiter: bytes) -> Iterator[bytes]:
    """Yield the texts between delimiters, as soon as they are complete; the last delimiter is optional."""
    if delimiter == b"\n":
        for line in source:
            yield line.removesuffix(b"\n")
        return
    read = getattr(source, "read1", source.read)
    rest = b""
    while chunk := read(_CHUNK_BYTES):
        *whole, rest = (rest + chunk).split(delimiter)
        yield from whole
    if rest:
        yield rest


def _reader(shape: Shape) -> Callable[[str, bytes], Outgoing]:
    if shape.is_json:
        return lambda place, line: _of_json(place, line, shape)
    return lambda place, line: _of_line(place, line, shape)


def _of_line(place: str, line: bytes, shape: Shape) -> Outgoing:
    key, value = shape.key, line
    if shape.key_separator is not None:
        before, separator, after = line.partition(shape.key_separator)
        if separator:
            key, value = _unless_null(before, shape), after
    return Outgoing(place, None, _unless_null(value, shape), key, shape.headers)


def _unless_null(text: bytes, shape: Shape) -> bytes | None:
    return None if text in shape.nulls else text


def _of_json(place: str, line: bytes, shape: Shape) -> Outgoing:
    try:
        fields = json.loads(line.decode())
    except (ValueError, RecursionError) as failure:
        raise InputError(f"{place}: invalid JSON: {failure}: {_shown(line)}") from failure
    if not isinstance(fields, dict) or "value" not in fields:
        raise InputError(f'{place}: not an object with a "value": {_shown(line)}')
    unknown = sorted(fields.keys() - _FIELDS)
    if unknown:
        raise InputError(f"{place} has {unknown[0]!r}, which is none of {', '.join(sorted(_FIELDS))}")
    try:
        headers = _headers(fields.get("headers"))
        key = _bytes_of("key", fields.get("key"))
        return Outgoing(
            place,
            _checked("topic", fields.get("topic"), str),
            _bytes_of("value", fields["value"]),
            shape.key if key is None else key,
            headers + shape.headers,
            _checked("partition", fields.get("partition"), int),
            _checked("timestamp", fields.get("timestamp"), int),
        )
    except ValueError as failure:
        raise InputError(f"{place}: {failure}") from failure


def _bytes_of(name: str, value: Any) -> bytes | None:
    """Return the bytes of a JSON value. Raises ValueError."""
    if value is None:
        return None
    if isinstance(value, str):
        return value.encode("utf-8")
    if isinstance(value, dict) and value.keys() == {"base64"} and isinstance(value["base64"], str):
        try:
            return base64.b64decode(value["base64"], validate=True)
        except binascii.Error as failure:
            raise ValueError(f"{name} has no valid base64: {failure}") from failure
    shown = _shown(json.dumps(value).encode())
    raise ValueError(f'{name} is {shown}: write a string, {{"base64": "..."}} or null')


def _headers(value: Any) -> tuple[Header, ...]:
    pairs = list(value.items()) if isinstance(value, dict) else value or []
    if not isinstance(pairs, list) or not all(
        isinstance(each, (list, tuple)) and len(each) == _HEADER_PARTS and isinstance(each[0], str) for each in pairs
    ):
        raise ValueError('headers are neither [["name", "value"], ...] nor an object')
    return tuple((name, _bytes_of(f"header {name}", text)) for name, text in pairs)


def _checked(name: str, value: Any, kind: type) -> Any:
    if value is None or (isinstance(value, kind) and not isinstance(value, bool)):
        return value
    raise ValueError(f"{name} is {json.dumps(value)}: write a {'number' if kind is int else 'string'}")


def _shown(text: bytes) -> str:
    shown = text.decode("utf-8", "backslashreplace")
    return shown if len(shown) <= _MOST_SHOWN else f"{shown[:_MOST_SHOWN]}..."
