"""Encodes a response a part at a time, so that its task can yield in between.

Used where a response may have any number of elements (`handler.api_calls`). The values are those of `codec`. An array
may be a `Lazily`, whose elements are made one by one as they are written, so that no response is in memory as values
and as bytes. The bytes are appended to a *sink* that can drop the last of them: an element with which the response
would become too long is replaced by the one that its `Lazily` has for that case. `broker.ipc.response_spool` is the
sink for responses of any length.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Generator, Iterator, Mapping
from functools import cache, partial
from itertools import pairwise
from typing import Any, Final, NamedTuple, Protocol, TypeAlias

from rotunda.broker.protocol.headers import response_header
from rotunda.broker.protocol.primitives import INT32, unsigned_varint_bytes
from rotunda.broker.protocol.schema.definitions import (
    Field,
    MessageDefinition,
    Structure,
    StructureDefinition,
    response,
)
from rotunda.broker.protocol.schema.writing import Write, made, make_fields_writer, make_writer

_SIZE_BYTES: Final = 4

#: The task yields after this many structures, or bytes: half a millisecond.
_STRUCTURES_AT_ONCE: Final = 32
_BYTES_AT_ONCE: Final = 64 * 1024

_DEEPEST: Final = 1 << 30


class AnswerTooLargeError(Exception):
    """A response exceeds the maximum size."""


class Sink(Protocol):
    """The bytes written so far. ``size``: their number."""

    size: int

    def append(self, data: bytes) -> None:
        """Add bytes at the end."""

    def cut(self, size: int) -> None:
        """Truncate the data to the first ``size`` bytes."""

    def put_size(self, size_bytes: bytes) -> None:
        """Overwrite the first bytes."""


class MemorySink:
    """A sink for short data."""

    def __init__(self) -> None:
        self.data = bytearray()
        self.size = 0

    def append(self, data: bytes) -> None:
        self.data += data
        self.size += len(data)

    def cut(self, size: int) -> None:
        """Truncate the data to the first ``size`` bytes."""
        del self.data[size:]
        self.size = size

    def put_size(self, size_bytes: bytes) -> None:
        """Overwrite the first bytes."""
        self.data[: len(size_bytes)] = size_bytes


class Encoded(NamedTuple):
    """An element of a response as it is written, and the error code in it."""

    data: bytes
    error_code: int


class Lazily:
    """An array of a response whose elements are made when they are written.

    ``make(item)`` returns the values of one element. Where the response would become too long with it, it is written as
    ``refuse(item)``, which is short; without that the whole response is too large.
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


class _Steps(NamedTuple):
    """The writers of one structure: at once, or in parts, with an array of structures after each but the last."""

    whole: Write
    parts: tuple[tuple[Write, Field | None], ...]


_StepsOf: TypeAlias = Callable[[StructureDefinition], _Steps]


class SlicedEncoder:
    """Writes one response to a sink. ``error_code``: the first one, of outer structures before inner ones."""

    def __init__(self, api_key: int, version: int, sink: Sink, most_bytes: int) -> None:
        self._message = response(api_key)
        self._header = partial(response_header, api_key, version)
        self._is_flexible = version in self._message.flexible
        self._steps_of: _StepsOf = _steps_of(api_key, version)
        self._sink = sink
        self._most_bytes = most_bytes
        self._structures = 0
        self._yielded_at = 0
        self._error_depth = _DEEPEST
        self.error_code = 0

    def encode(self, correlation_id: int, values: Any) -> Generator[None, None, None]:
        """Write the whole response, size and header included. Raises AnswerTooLargeError."""
        self._write(bytes(_SIZE_BYTES) + self._header(correlation_id))
        yield from self._structure(self._message.structure, values, 0)
        self._sink.put_size(INT32.pack(self._sink.size - _SIZE_BYTES))

    def element(self, field: Field, values: Lazily, item: Any) -> Generator[None, None, int]:
        """Write one element of an array and nothing else; return its error code."""
        self.error_code, self._error_depth = 0, _DEEPEST
        yield from self._lazy(field, values, item, 0)
        return self.error_code

    def _structure(self, structure: StructureDefinition, values: Any, depth: int) -> Generator[None, None, None]:
        self._note_error(values, depth)
        if isinstance(values, Encoded):
            self._write(values.data)
        else:
            steps = self._steps_of(structure)
            if steps.parts:
                yield from self._parts(structure, steps, values, depth)
            else:
                self._write(steps.whole(values))
        if self._is_due():
            yield

    def _is_due(self) -> bool:
        """Count a structure; return whether the task should yield."""
        self._structures += 1
        if self._structures < _STRUCTURES_AT_ONCE and self._sink.size - self._yielded_at < _BYTES_AT_ONCE:
            return False
        self._structures, self._yielded_at = 0, self._sink.size
        return True

    def _parts(
        self, structure: StructureDefinition, steps: _Steps, values: Any, depth: int
    ) -> Generator[None, None, None]:
        value: Any = values if isinstance(values, Structure) else made(self._message, structure.value_class, values)
        for write, array in steps.parts:
            self._write(write(value))
            if array is not None:
                yield from self._array(array, getattr(value, array.name), depth + 1)

    def _array(self, field: Field, values: Any, depth: int) -> Generator[None, None, None]:
        count = -1 if values is None else len(values)
        self._write(unsigned_varint_bytes(count + 1) if self._is_flexible else INT32.pack(count))
        structure = _structure_of(field)
        steps = self._steps_of(structure)
        if isinstance(values, Lazily) and values.refuse is not None:
            for item in values.items:
                yield from self._lazy(field, values, item, depth)
        elif steps.parts:
            for each in values or ():
                yield from self._structure(structure, each, depth)
        else:
            write = steps.whole
            for each in values or ():
                self._note_error(each, depth)
                self._write(each.data if isinstance(each, Encoded) else write(each))
                if self._is_due():
                    yield

    def _lazy(self, field: Field, values: Lazily, item: Any, depth: int) -> Generator[None, None, None]:
        """Write one element, or the short one in its place."""
        before = self._sink.size
        try:
            yield from self._structure(_structure_of(field), values.make(item), depth)
        except AnswerTooLargeError:
            if values.refuse is None:
                raise
            self._sink.cut(before)
            refused = values.refuse(item)
            self._note_error(refused, depth)
            data = self._steps_of(_structure_of(field)).whole(refused)
            # It is short, and does not count towards the limit of those that follow.
            self._most_bytes += len(data)
            self._sink.append(data)
            yield

    def _write(self, data: bytes) -> None:
        if self._sink.size + len(data) > self._most_bytes:
            raise AnswerTooLargeError
        self._sink.append(data)

    def _note_error(self, values: Any, depth: int) -> None:
        if depth >= self._error_depth:
            return
        code = values.get("error_code") if isinstance(values, Mapping) else getattr(values, "error_code", 0)
        if code:
            self.error_code, self._error_depth = int(code), depth


def encoded_elements(
    place: tuple[int, int, str], values: Lazily, most_bytes: int
) -> Generator[None, None, list[Encoded]]:
    """Return the encoded elements of one array of a response; ``place``: (API key, version, field).

    Elements beyond a total of ``most_bytes`` are replaced by ``refuse(item)``.
    """
    api_key, version, name = place
    sink = MemorySink()
    encoder = SlicedEncoder(api_key, version, sink, most_bytes)
    (field,) = [each for each in response(api_key).structure.fields if each.name == name]
    codes, ends = [], [0]
    for item in values.items:
        codes.append((yield from encoder.element(field, values, item)))
        ends.append(sink.size)
    return [
        Encoded(bytes(sink.data[start:end]), code) for (start, end), code in zip(pairwise(ends), codes, strict=True)
    ]


def _structure_of(field: Field) -> StructureDefinition:
    if field.structure is None:
        raise TypeError(f"{field.name} has no structures")
    return field.structure


@cache
def _steps_of(api_key: int, version: int) -> _StepsOf:
    """Return a function that returns the steps of a structure, made on first use."""
    message, made = response(api_key), dict[int, _Steps]()

    def steps_of(structure: StructureDefinition) -> _Steps:
        found = made.get(id(structure))
        if found is None:
            found = _Steps(make_writer(message, version, structure), _parts_of(message, version, structure))
            made[id(structure)] = found
        return found

    return steps_of


def _parts_of(
    message: MessageDefinition, version: int, structure: StructureDefinition
) -> tuple[tuple[Write, Field | None], ...]:
    """Return the parts in which a structure is written; nothing for one without arrays of structures."""
    present = [each for each in structure.fields if version in each.versions]
    plain = [each for each in present if each.tag is None]
    if not any(_has_structures(each) for each in plain):
        return ()
    parts: list[tuple[Write, Field | None]] = []
    waiting: list[Field] = []
    for field in plain:
        if _has_structures(field):
            parts.append((make_fields_writer(message, version, waiting, None), field))
            waiting = []
        else:
            waiting.append(field)
    tagged = [each for each in present if each.tag is not None]
    parts.append((make_fields_writer(message, version, waiting, tagged), None))
    return tuple(parts)


def _has_structures(field: Field) -> bool:
    return field.is_array and field.structure is not None
