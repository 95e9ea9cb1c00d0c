"""Reads messages by kio's schema into kio's objects, without trusting a byte of them.

Run by handlers, on behalf of `kio_adapter`. kio has a reader of its own, made for clients that trust their
broker: it sets memory aside for whatever count a message claims, which ends the process, and refuses tagged
fields that it does not know, which newer clients may send. Here every count and length is first compared
with the bytes that are there, and unknown tagged fields are skipped. One reader per message class is put
together from the schema and kept. What all arrays of one message may have together is bounded too: an element takes a
byte of the request, and a hundred of memory.

A message of very many elements is read in steps (`broker.protocol.steps`): of each class with arrays in it there is a
second reader, a generator, that yields after some elements. Structures without arrays are read at once by either.
"""

import sys
from collections.abc import Callable
from functools import cache
from typing import Any, Final, NamedTuple, TypeAlias

from broker.errors import InvalidReceive
from broker.protocol.kio.kio_primitives import Reader, primitive_reader
from broker.protocol.kio.kio_schema import SchemaField, fields_of
from broker.protocol.primitives import (
    MALFORMED,
    Buffer,
    check_end,
    read_array_count,
    read_compact_array_count,
    read_tagged_fields,
)
from broker.protocol.steps import ELEMENTS_AT_ONCE, Steps

StepReader: TypeAlias = Callable[[Buffer, int, int], Steps[tuple[Any, int]]]
"""What a reader does, in steps."""


class _Elements:
    """How many elements the message that is read may still have. One is read at a time, between two yields.

    ``unpaused``: how many have been read since the last yield.
    """

    __slots__ = ("left", "unpaused")

    def __init__(self) -> None:
        self.left = 0
        self.unpaused = 0

    def take(self, count: int) -> None:
        """Account for elements that are about to be read. InvalidReceive if they are too many."""
        self.left -= count
        if self.left < 0:
            raise InvalidReceive("more elements in its arrays than a request may have")


_elements = _Elements()

_MALFORMED: Final = (*MALFORMED, ValueError, OverflowError)


def read_message(message_class: Any, buffer: Buffer, offset: int, end: int, most_elements: int = sys.maxsize) -> Any:
    """Return the `message_class` whose body is [offset, end) of `buffer`.

    InvalidReceive when it is malformed, or its arrays have more elements together than `most_elements`.
    """
    _elements.left = most_elements
    try:
        message, offset = _structure_reader(message_class)(buffer, offset, end)
    except _MALFORMED as error:
        raise InvalidReceive(f"malformed {message_class.__name__}: {error}") from error
    check_end(offset, end)
    return message


def read_message_in_steps(
    message_class: Any, buffer: Buffer, offset: int, end: int, most_elements: int = sys.maxsize
) -> Steps[Any]:
    """Return what `read_message` returns, in steps. Raises InvalidReceive."""
    reader = _step_reader(message_class)
    if reader is None:
        return read_message(message_class, buffer, offset, end, most_elements)
    left, steps = most_elements, reader(buffer, offset, end)
    while True:
        # Others may have read messages of theirs since the last step.
        _elements.left, _elements.unpaused = left, 0
        try:
            next(steps)
        except StopIteration as stop:
            message, offset = stop.value
            break
        except _MALFORMED as error:
            raise InvalidReceive(f"malformed {message_class.__name__}: {error}") from error
        left = _elements.left
        yield
    check_end(offset, end)
    return message


class _Plan(NamedTuple):
    """How a structure is read: its fields in their order, those with tags by tag, and what those have if left out."""

    fields: list[tuple[str, Reader, StepReader | None]]
    tagged: dict[int, tuple[str, Reader]]
    defaults: dict[str, Any]


@cache
def _plan_of(message_class: Any) -> _Plan:
    flexible: bool = message_class.__flexible__
    plan = _Plan([], {}, {})
    for field in fields_of(message_class):
        if field.tag is None:
            reader = _field_reader(field, flexible, nullable=field.is_nullable)
            plan.fields.append((field.name, reader, _field_step_reader(field, flexible)))
        else:
            plan.tagged[field.tag] = field.name, _field_reader(field, flexible, nullable=False)
            plan.defaults[field.name] = field.default
    return plan


@cache
def _structure_reader(message_class: Any) -> Reader:
    flexible: bool = message_class.__flexible__
    fields, tagged, defaults = _plan_of(message_class)
    readers = [(name, reader) for name, reader, _ in fields]

    def read(buffer: Buffer, offset: int, end: int) -> tuple[Any, int]:
        values = dict(defaults)
        for name, read_field in readers:
            values[name], offset = read_field(buffer, offset, end)
        if flexible:
            offset = _read_tagged(tagged, values, buffer, offset, end)
        return message_class(**values), offset

    return read


@cache
def _step_reader(message_class: Any) -> StepReader | None:
    """Return what reads a structure in steps; None if there is no array in it."""
    flexible: bool = message_class.__flexible__
    readers, tagged, defaults = _plan_of(message_class)
    if all(steps is None for _, _, steps in readers):
        return None

    def read(buffer: Buffer, offset: int, end: int) -> Steps[tuple[Any, int]]:
        values = dict(defaults)
        for name, read_field, steps in readers:
            if steps is None:
                values[name], offset = read_field(buffer, offset, end)
            else:
                values[name], offset = yield from steps(buffer, offset, end)
        if flexible:
            offset = _read_tagged(tagged, values, buffer, offset, end)
        return message_class(**values), offset

    return read


def _read_tagged(
    tagged: dict[int, tuple[str, Reader]], values: dict[str, Any], buffer: Buffer, offset: int, end: int
) -> int:
    """Put the tagged fields of a structure, which are few, among its values; return the offset behind them."""
    found, offset = read_tagged_fields(buffer, offset, end)
    _elements.take(len(found))
    for tag, position in found.items():
        if tag in tagged:
            name, read_field = tagged[tag]
            values[name], _ = read_field(buffer, position, offset)
    return offset


def _field_reader(field: SchemaField, flexible: bool, *, nullable: bool) -> Reader:
    """Return the reader of one field. A tagged field is never null: it is left out instead."""
    if field.structure is not None:
        element = _structure_reader(field.structure)
        if nullable and not field.is_array:
            return _nullable_structure(element)
    else:
        element = primitive_reader(field.kafka_type, flexible, nullable=nullable and not field.is_array)
    return _array_reader(element, flexible, nullable=nullable) if field.is_array else element


def _field_step_reader(field: SchemaField, flexible: bool) -> StepReader | None:
    """Return what reads a field in steps if it is an array, which is where there may be many of something."""
    if not field.is_array:
        return None
    if field.structure is not None:
        element, steps = _structure_reader(field.structure), _step_reader(field.structure)
    else:
        element, steps = primitive_reader(field.kafka_type, flexible, nullable=False), None
    return _array_step_reader(element, steps, flexible, nullable=field.is_nullable)


def _nullable_structure(element: Reader) -> Reader:
    """Return the reader of a structure behind a byte that is negative for null (KIP-893)."""

    def read(buffer: Buffer, offset: int, end: int) -> tuple[Any, int]:
        return (None, offset + 1) if buffer[offset] >= 0x80 else element(buffer, offset + 1, end)

    return read


def _array_reader(element: Reader, flexible: bool, *, nullable: bool) -> Reader:
    read_count = _count_reader(flexible, nullable=nullable)

    def read(buffer: Buffer, offset: int, end: int) -> tuple[Any, int]:
        count, offset = read_count(buffer, offset, end)
        if count < 0:
            return None, offset
        values = []
        for _ in range(count):
            value, offset = element(buffer, offset, end)
            check_end(offset, end)
            values.append(value)
        return tuple(values), offset

    return read


def _array_step_reader(element: Reader, steps: StepReader | None, flexible: bool, *, nullable: bool) -> StepReader:
    read_count = _count_reader(flexible, nullable=nullable)

    def read(buffer: Buffer, offset: int, end: int) -> Steps[tuple[Any, int]]:
        count, offset = read_count(buffer, offset, end)
        if count < 0:
            return None, offset
        values = []
        for _ in range(count):
            if steps is None:
                value, offset = element(buffer, offset, end)
            else:
                value, offset = yield from steps(buffer, offset, end)
            check_end(offset, end)
            values.append(value)
            _elements.unpaused += 1
            if _elements.unpaused >= ELEMENTS_AT_ONCE:
                yield
        return tuple(values), offset

    return read


def _count_reader(flexible: bool, *, nullable: bool) -> Callable[[Buffer, int, int], tuple[int, int]]:
    """Return what reads how many elements an array has, -1 for null, and accounts for them."""
    read_count = read_compact_array_count if flexible else read_array_count

    def read(buffer: Buffer, offset: int, end: int) -> tuple[int, int]:
        count, offset = read_count(buffer, offset, end)
        if count < 0:
            if not nullable:
                raise InvalidReceive("null where an array must be")
            return -1, offset
        _elements.take(count)
        return count, offset

    return read
