"""Encodes a message a piece at a time, so that whoever does it can do something else in between.

Used where an answer may have any number of elements (`handler.api_calls`). The values are those of `kio_adapter`;
an array in them may be a `Lazily`, whose elements are made one by one as they are written, so that no answer stands
in memory as values and as bytes. What is written goes into a *sink* that can take the last of it back: an element that
would make the answer longer than it may be is replaced by what its `Lazily` has for that case.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Collection, Generator, Iterator, Mapping, Sequence
from functools import cache, partial
from itertools import pairwise
from types import SimpleNamespace
from typing import Any, Final, NamedTuple

from broker.protocol.headers import request_header, response_header
from broker.protocol.kio.kio_adapter import Convert, IsName, build, converters_of, defaults_of
from broker.protocol.kio.kio_schema import (
    SchemaField,
    described_names,
    fields_of,
    is_response_name,
    request_class,
    response_class,
)
from broker.protocol.kio.kio_writer import Writer, field_writer, tagged_fields, write_message
from broker.protocol.primitives import INT32, unsigned_varint_bytes
from broker.protocol.sinks import AnswerTooLargeError, MemorySink, Sink

#: After so many structures, or bytes, somebody else may have a turn: half a millisecond.
_STRUCTURES_AT_ONCE: Final = 32
_BYTES_AT_ONCE: Final = 64 * 1024
_PRIMITIVES_AT_ONCE: Final = 512

_SIZE_BYTES: Final = 4

_NOTHING: Final = object()


class Encoded(NamedTuple):
    """An element of a response in the bytes in which it is written; ``error_code`` stands in it."""

    data: bytes
    error_code: int


class Lazily:
    """An array of a response whose elements are made when they are written.

    ``make(item)`` returns the values of one element. Where the answer would become too long with it, it is written as
    ``refuse(item)``, which is short; without that the whole answer is too large.
    """

    __slots__ = ("items", "make", "refuse")

    def __init__(
        self, items: Collection[Any], make: Callable[[Any], Any], refuse: Callable[[Any], Any] | None = None
    ) -> None:
        self.items = items
        self.make = make
        self.refuse = refuse

    def __len__(self) -> int:
        return len(self.items)

    def __iter__(self) -> Iterator[Any]:
        return map(self.make, self.items)


class _Step(NamedTuple):
    """How one field of a structure with arrays of structures in it is written."""

    argument: str
    names: tuple[str, ...]
    nested: Any
    """The class of the structures in an array, or None."""
    write: Writer | None
    element: Writer | None = None
    """What writes an element of an array of numbers or texts."""


class SlicedEncoder:
    """One answer on its way into a sink. ``error_code`` is the first one met, of outer structures before inner ones."""

    def __init__(self, api_key: int, version: int, sink: Sink, most_bytes: int) -> None:
        self._class = response_class(api_key, version)
        self._header = partial(response_header, api_key, version)
        self._is_name: IsName = partial(is_response_name, api_key)
        self._sink = sink
        self._most_bytes = most_bytes
        self._structures = 0
        self._yielded_at = 0
        self._error_depth = 1 << 30
        self.error_code = 0

    def encode(self, correlation_id: int, values: Mapping[str, Any]) -> Generator[None, None, None]:
        """Write the whole response, size and header included. Raises AnswerTooLargeError."""
        self._write(bytes(_SIZE_BYTES) + self._header(correlation_id))
        yield from self.structure(self._class, values)
        self._sink.put_size(INT32.pack(self._sink.size - _SIZE_BYTES))

    def structure(self, message_class: Any, values: Any) -> Generator[None, None, None]:
        """Write a structure and nothing else. Raises AnswerTooLargeError."""
        yield from self._structure(message_class, values, 0)

    def _structure(self, message_class: Any, values: Any, depth: int) -> Generator[None, None, None]:
        self._note_error(values, depth)
        steps, tagged, has_structures = _plan_of(message_class)
        # The numbers and texts in a structure are few, those in a message itself may be many.
        is_short = not steps or (depth > 0 and not has_structures)
        if isinstance(values, Encoded):
            self._write(values.data)
        elif is_short or not isinstance(values, Mapping):
            if isinstance(values, Mapping):
                values = build(message_class, values, self._is_name)
            self._write(write_message(values))
        else:
            yield from self._fields(message_class, values, depth)
            if message_class.__flexible__:
                self._write(tagged_fields(_tagged_values(message_class, tagged, values, self._is_name), list(tagged)))
        self._structures += 1
        if self._structures >= _STRUCTURES_AT_ONCE or self._sink.size - self._yielded_at >= _BYTES_AT_ONCE:
            self._structures, self._yielded_at = 0, self._sink.size
            yield

    def element(self, message_class: Any, values: Lazily, item: Any) -> Generator[None, None, int]:
        """Write one element of an array and nothing else; return its error code."""
        self.error_code, self._error_depth = 0, 1 << 30
        yield from self._lazy(message_class, values, item, 0)
        return self.error_code

    def _fields(self, message_class: Any, values: Mapping[str, Any], depth: int) -> Generator[None, None, None]:
        """Write the fields without tags of a structure with arrays of structures."""
        self._check_names(message_class, values)
        steps, _, _ = _plan_of(message_class)
        for step in steps:
            value = _value_of(message_class, step, values, self._is_name)
            if step.element is not None and value is not None:
                _, convert = converters_of(message_class)[step.argument]
                yield from self._primitives((step.element, convert), value, message_class.__flexible__)
            elif step.write is not None:
                self._write(step.write(value))
            else:
                yield from self._array(step.nested, value, message_class.__flexible__, depth + 1)

    def _array(self, message_class: Any, values: Any, flexible: bool, depth: int) -> Generator[None, None, None]:
        if values is None:
            self._write(_count_bytes(-1, flexible))
            return
        self._write(_count_bytes(len(values), flexible))
        if isinstance(values, Lazily):
            for item in values.items:
                yield from self._lazy(message_class, values, item, depth)
        else:
            for value in values:
                yield from self._structure(message_class, value, depth)

    def _primitives(
        self, how: tuple[Writer, Convert], values: Sequence[Any], flexible: bool
    ) -> Generator[None, None, None]:
        """Write an array of numbers or texts, which as a rule are few; ``how``: what writes one, what converts many."""
        write, convert = how
        self._write(_count_bytes(len(values), flexible))
        for start in range(0, len(values), _PRIMITIVES_AT_ONCE):
            if start:
                yield
            some = convert(values[start : start + _PRIMITIVES_AT_ONCE], self._is_name)
            self._write(b"".join([write(value) for value in some]))

    def _lazy(self, message_class: Any, values: Lazily, item: Any, depth: int) -> Generator[None, None, None]:
        """Write one element, or what it is refused with."""
        before = self._sink.size
        try:
            yield from self._structure(message_class, values.make(item), depth)
        except AnswerTooLargeError:
            if values.refuse is None:
                raise
            self._sink.cut(before)
            refused = values.refuse(item)
            self._note_error(refused, depth)
            data = write_message(build(message_class, refused, self._is_name))
            # What says so is short, and is not held against what still fits.
            self._most_bytes += len(data)
            self._sink.append(data)
            yield

    def _write(self, data: bytes) -> None:
        if self._sink.size + len(data) > self._most_bytes:
            raise AnswerTooLargeError
        self._sink.append(data)

    def _check_names(self, message_class: Any, values: Mapping[str, Any]) -> None:
        converters = converters_of(message_class)
        for name in values:
            if name not in converters and not self._is_name(name):
                raise TypeError(f"no version of {message_class.__name__} has a field {name!r}")

    def _note_error(self, values: Any, depth: int) -> None:
        if depth >= self._error_depth:
            return
        code = values.get("error_code") if isinstance(values, Mapping) else getattr(values, "error_code", 0)
        if code:
            self.error_code, self._error_depth = int(getattr(code, "value", code)), depth


def _count_bytes(count: int, flexible: bool) -> bytes:
    return unsigned_varint_bytes(count + 1) if flexible else INT32.pack(count)


def request_in_steps(
    api_key: int, version: int, client_id: str, values: Mapping[str, Any]
) -> Generator[None, None, bytes]:
    """Return what `kio_adapter.encode_request` returns, some structures at a time."""
    sink = MemorySink()
    sink.append(bytes(_SIZE_BYTES) + request_header(api_key, version, 0, client_id))
    encoder = SlicedEncoder(api_key, version, sink, sys.maxsize)
    yield from encoder.structure(request_class(api_key, version), values)
    sink.put_size(INT32.pack(sink.size - _SIZE_BYTES))
    return bytes(sink.data)


def encoded_elements(
    place: tuple[int, int, str], values: Lazily, most_bytes: int
) -> Generator[None, None, list[Encoded]]:
    """Return the elements of one array of a response as they are written; ``place``: (api key, version, field).

    Elements are refused with which there would be more than ``most_bytes`` together.
    """
    api_key, version, name = place
    sink = MemorySink()
    encoder = SlicedEncoder(api_key, version, sink, most_bytes)
    message_class: Any = response_class(api_key, version)
    (field,) = [each for each in fields_of(message_class) if name in described_names(each)]
    codes, ends = [], [0]
    for item in values.items:
        codes.append((yield from encoder.element(field.structure, values, item)))
        ends.append(sink.size)
    return [
        Encoded(bytes(sink.data[start:end]), code) for (start, end), code in zip(pairwise(ends), codes, strict=True)
    ]


def _value_of(message_class: Any, step: _Step, values: Mapping[str, Any], is_name: IsName) -> Any:
    """Return the value of a field as it is to be written, or the elements of an array as they are."""
    for name in step.names:
        value = values.get(name, _NOTHING)
        if value is not _NOTHING:
            is_array = step.nested is not None or step.element is not None
            return value if is_array else converters_of(message_class)[name][1](value, is_name)
    return defaults_of(message_class)[step.argument]


_Tagged = tuple[int, str, Writer, Any]


def _tagged_values(
    message_class: Any, tagged: tuple[_Tagged, ...], values: Mapping[str, Any], is_name: IsName
) -> SimpleNamespace:
    """Return the values of the tagged fields of a structure, defaults included."""
    built = SimpleNamespace(**{argument: default for _, argument, _, default in tagged})
    if tagged:
        for name, (argument, convert) in converters_of(message_class).items():
            if name in values and hasattr(built, argument):
                setattr(built, argument, convert(values[name], is_name))
    return built


@cache
def _plan_of(message_class: Any) -> tuple[tuple[_Step, ...], tuple[_Tagged, ...], bool]:
    """Return how a structure is written that has arrays, field by field, and whether there are structures in them.

    No steps for a structure without arrays.
    """
    fields = fields_of(message_class)
    flexible: bool = message_class.__flexible__
    tagged = tuple(
        (field.tag, field.name, field_writer(field, flexible, nullable=False), field.default)
        for field in sorted(fields, key=lambda each: each.tag or 0)
        if field.tag is not None
    )
    plain = [field for field in fields if field.tag is None]
    if not any(field.is_array for field in plain):
        return (), tagged, False
    return tuple(_step_of(field, flexible) for field in plain), tagged, any(_is_nested(field) for field in plain)


def _step_of(field: SchemaField, flexible: bool) -> _Step:
    names = described_names(field)
    if _is_nested(field):
        return _Step(field.name, names, field.structure, None)
    write = field_writer(field, flexible, nullable=field.is_nullable)
    element = field_writer(field._replace(is_array=False), flexible, nullable=False) if field.is_array else None
    return _Step(field.name, names, None, write, element)


def _is_nested(field: SchemaField) -> bool:
    return field.is_array and field.structure is not None
