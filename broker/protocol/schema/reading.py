"""Generates the function that reads one version of a message.

Nothing in the bytes is trusted. The message is first copied, so that no read gets beyond it: of a truncated value
Python's slices are short, and the next head or the check at the end fails. An element has at least a byte, so the
number of elements of all arrays together is bounded by the number of bytes, in addition to `most_elements`. Tagged
fields unknown to the version are skipped. Bytes of strings that are not UTF-8 become U+FFFD, as in Kafka: a second
function reads such a message.

Runs of fields of fixed size are one call of `struct`, together with the head (length, count, number of tagged fields)
of the value that follows.

A message with records may be read in place, without a copy: its records are then their position and their size.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Collection
from functools import cache, partial
from typing import Any, Final, TypeAlias

from rotunda.broker.errors import InvalidReceive, TooManyElements
from rotunda.broker.protocol.primitives import (
    MALFORMED,
    MOST_ELEMENTS,
    MOST_TAGGED_FIELDS,
    Buffer,
    read_unsigned_varint,
    skip_tagged_fields,
)
from rotunda.broker.protocol.schema.definitions import Field, MessageDefinition, StructureDefinition
from rotunda.broker.protocol.schema.source import FIXED, LONGEST_STRING_BYTES, Source

Read: TypeAlias = Callable[[Buffer, int, int, int], Any]
"""(buffer, offset, end, most elements) -> the message in [offset, end). Raises InvalidReceive."""


def make_reader(
    message: MessageDefinition, version: int, located: Collection[str] = (), *, in_place: bool = False
) -> Read:
    """Return the function that reads one version of a message.

    ``located``: names of untagged fields of fixed size. Then the function returns the message, and (offset, `struct`
    format) of each of them in order. ``in_place``: records are (offset in the buffer, size), (offset, -1) if null.
    """
    source = partial(_ReaderSource, message, version, located, in_place=in_place)
    return source(cache(lambda: source(None).compiled())).compiled()


def _long_string(data: Buffer, offset: int, name: str, errors: str) -> tuple[str, int]:
    """Return a string whose varint length has several bytes, or is 0 where null is invalid."""
    length, offset = read_unsigned_varint(data, offset)
    if length == 0:
        raise _null(name)
    if length > LONGEST_STRING_BYTES + 1:
        raise InvalidReceive(f"string {name} of {length - 1} bytes")
    stop = offset + length - 1
    return str(data[offset:stop], "utf-8", errors), stop


def _long_bytes(data: bytes, offset: int, name: str) -> tuple[bytes, int]:
    """Return bytes whose varint length has several bytes, or is 0 where null is invalid."""
    length, offset = read_unsigned_varint(data, offset)
    if length == 0:
        raise _null(name)
    stop = offset + length - 1
    return data[offset:stop], stop


def _long_records(data: Buffer, offset: int, name: str, start: int) -> tuple[tuple[int, int], int]:
    """Return the position of records whose varint length has several bytes, with their size."""
    length, offset = read_unsigned_varint(data, offset)
    if length == 0:
        raise _null(name)
    return (start + offset, length - 1), offset + length - 1


def _null(name: str) -> InvalidReceive:
    return InvalidReceive(f"null in {name}, which must not be null")


def _too_many(size_bytes: int) -> InvalidReceive:
    if size_bytes > MOST_ELEMENTS:
        return TooManyElements("more elements in its arrays than a request may have")
    return InvalidReceive("more elements in its arrays than its bytes hold")


def _ids(data: bytes, offset: int, count: int) -> tuple[bytes, ...]:
    return tuple([data[start : start + 16] for start in range(offset, offset + 16 * count, 16)])


def _check_tag_count(count: int) -> None:
    if count > MOST_TAGGED_FIELDS:
        raise InvalidReceive(f"{count} tagged fields in one structure")


def _check_size(name: str, is_right: bool) -> None:
    if not is_right:
        raise InvalidReceive(f"tagged field {name} of a wrong size")


_GLOBALS: Final[dict[str, Any]] = {
    "MALFORMED": MALFORMED,
    "InvalidReceive": InvalidReceive,
    "check_size": _check_size,
    "check_tag_count": _check_tag_count,
    "ids": _ids,
    "long_bytes": _long_bytes,
    "long_records": _long_records,
    "new": object.__new__,
    "null": _null,
    "skip_tagged_fields": skip_tagged_fields,
    "too_many": _too_many,
    "unpack": struct.unpack_from,
    "varint": read_unsigned_varint,
}


class _ReaderSource:
    """The source of one reader. `_run`: fields of fixed size that are not read yet, as (layout, target).

    `replacing` returns the reader of messages with strings that are not UTF-8; None: this is that one.
    """

    def __init__(
        self,
        message: MessageDefinition,
        version: int,
        located: Collection[str],
        replacing: Callable[[], Read] | None,
        *,
        in_place: bool,
    ) -> None:
        self.source = Source(dict(_GLOBALS))
        self._name = f"{message.name} {version}"
        self._errors = "strict" if replacing is not None else "replace"
        self._decode = ".decode()" if replacing is not None else ".decode(errors='replace')"
        self.source.names["long_string"] = partial(_long_string, errors=self._errors)
        self._in_place = in_place
        self._version = version
        self._located = located
        self._is_flexible = version in message.flexible
        self._run: list[tuple[str, str]] = []
        self._tagged: list[tuple[str, StructureDefinition]] = []
        source = self.source
        with source.block("def read(buffer, offset, end, most):"):
            source.add("data = memoryview(buffer)[offset:end]" if in_place else "data = bytes(buffer[offset:end])")
            if located:
                source.add("places = []")
            source.add("start, offset = offset, 0")
            source.add("end = len(data)")
            source.add("left = end if end < most else most")
            with source.block("try:"):
                self._structure(message.structure, "message")
                self._flush()
            if replacing is not None:
                with source.block("except UnicodeDecodeError:"):
                    source.add(f"return {source.refer('replacing', replacing)}()(buffer, start, start + end, most)")
            with source.block("except MALFORMED as error:"):
                source.add(f"raise InvalidReceive(f'malformed {self._name}: {{error}}') from error")
            with source.block("if offset > end:"):
                source.add(f"raise InvalidReceive(f'{self._name} ends after {{end}} bytes')")
            source.add("return message, places" if located else "return message")
        while self._tagged:
            self._tagged_reader(*self._tagged.pop())

    def compiled(self) -> Read:
        read: Read = self.source.compile(f"read {self._name}")["read"]
        return read

    def _structure(self, structure: StructureDefinition, target: str) -> None:
        source = self.source
        source.add(f"{target} = new({source.refer('Class', structure.value_class)})")
        tagged = []
        for field in structure.fields:
            place = f"{target}.{field.name}"
            if self._version in field.versions and field.tag is None:
                self._field(field, place)
            else:
                source.add(f"{place} = {source.constant(field.default)}")
                if self._version in field.versions:
                    tagged.append(field)
        if self._is_flexible:
            offset = self._head("B", "count")
            source.add(f"offset += {offset}")
            if tagged:
                reader = source.name("read_tagged")
                self._tagged.append((reader, structure))
                source.add(f"if count: offset, left = {reader}({target}, data, offset - 1, left)")
            else:
                source.add("if count: offset = skip_tagged_fields(data, offset - 1, end)")

    def _field(self, field: Field, target: str) -> None:
        is_nullable = self._version in field.nullable
        if field.is_array:
            self._array(field, target, is_nullable)
        elif field.structure is None:
            self._primitive(field, target, is_nullable)
        elif is_nullable:
            self._nullable_structure(field, field.structure, target)
        else:
            self._nested(field.structure, target)

    def _nested(self, structure: StructureDefinition, target: str) -> None:
        inner = self.source.name("inner")
        self._structure(structure, inner)
        self.source.add(f"{target} = {inner}")

    def _nullable_structure(self, field: Field, structure: StructureDefinition, target: str) -> None:
        """Read a structure after a byte that is negative for null, or as a tagged field zero (KIP-893)."""
        offset = self._head("b", "mark")
        self.source.add(f"offset += {offset}")
        with self.source.block("if mark < 0:" if field.tag is None else "if mark <= 0:"):
            self.source.add(f"{target} = None")
        with self.source.block("else:"):
            self._nested(structure, target)
            self._flush()

    def _primitive(self, field: Field, target: str, is_nullable: bool) -> None:
        layout = FIXED.get(field.kind)
        if layout is not None:
            self._run.append((layout, target))
            return
        if self._is_flexible and not field.is_inflexible:
            self._compact(field, target, is_nullable)
        else:
            self._legacy(field, target, is_nullable)

    def _compact(self, field: Field, target: str, is_nullable: bool) -> None:
        source = self.source
        offset = self._head("B", "length")
        with source.block("if 0 < length < 128:"):
            self._value(field, target, offset, f"offset + length + {offset - 1}")
        if is_nullable:
            with source.block("elif not length:"):
                source.add(f"{target} = {self._null_value(field, offset)}")
                source.add(f"offset += {offset}")
        with source.block("else:"):
            place = f"data, offset + {offset - 1}, {field.name!r}"
            read = "long_string({})" if field.kind == "string" else "long_bytes({})"
            if self._is_placed(field):
                read = "long_records({}, start)"
            source.add(f"{target}, offset = {read.format(place)}")

    def _legacy(self, field: Field, target: str, is_nullable: bool) -> None:
        source = self.source
        offset = self._head("h" if field.kind == "string" else "i", "length")
        with source.block("if length >= 0:"):
            self._value(field, target, offset, f"offset + length + {offset}")
        with source.block("else:"):
            if is_nullable:
                source.add(f"{target} = {self._null_value(field, offset)}")
                source.add(f"offset += {offset}")
            else:
                source.add(f"raise null({field.name!r})")

    def _value(self, field: Field, target: str, offset: int, stop: str) -> None:
        """Read a value after its length."""
        source = self.source
        source.add(f"stop = {stop}")
        value = f"data[offset + {offset}:stop]"
        if self._is_placed(field):
            value = f"(start + offset + {offset}, stop - offset - {offset})"
        elif field.kind == "string":
            value = f"str({value}, 'utf-8', {self._errors!r})" if self._in_place else f"{value}{self._decode}"
        source.add(f"{target} = {value}")
        source.add("offset = stop")

    def _null_value(self, field: Field, offset: int) -> str:
        return f"(start + offset + {offset}, -1)" if self._is_placed(field) else "None"

    def _is_placed(self, field: Field) -> bool:
        return self._in_place and field.kind == "records"

    def _array(self, field: Field, target: str, is_nullable: bool) -> None:
        source = self.source
        if self._is_flexible:
            offset = self._head("B", "count")
            source.add(f"if count < 128: offset += {offset}")
            source.add(f"else: count, offset = varint(data, offset + {offset - 1})")
            source.add("count -= 1")
        else:
            source.add(f"offset += {self._head('i', 'count')}")
        with source.block("if count > 0:"):
            source.add("left -= count")
            source.add("if left < 0: raise too_many(end)")
            self._elements(field, target)
        source.add(f"elif not count: {target} = ()")
        source.add(f"else: {target} = None" if is_nullable else f"else: raise null({field.name!r})")

    def _elements(self, field: Field, target: str) -> None:
        source = self.source
        layout = FIXED.get(field.kind)
        if field.kind == "uuid":
            source.add(f"{target} = ids(data, offset, count)")
            source.add("offset += count * 16")
        elif layout is not None:
            source.add(f"{target} = unpack(f'>{{count}}{layout}', data, offset)")
            source.add(f"offset += count * {struct.calcsize('>' + layout)}")
        else:
            items, item = source.name("items"), source.name("item")
            source.add(f"{items} = []")
            with source.block("for _ in range(count):"):
                if field.structure is None:
                    self._primitive(field, item, is_nullable=False)
                else:
                    self._structure(field.structure, item)
                self._flush()
                source.add(f"{items}.append({item})")
            source.add(f"{target} = tuple({items})")

    def _head(self, layout: str, name: str) -> int:
        """Read the fields that wait together with the head of a value; return the number of bytes of both."""
        self._run.append((layout, name))
        return self._unpack()

    def _flush(self) -> None:
        if self._run:
            self.source.add(f"offset += {self._unpack()}")

    def _unpack(self) -> int:
        """Read the pending fields, from the offset, which is not changed; return their number of bytes."""
        for number, (each, target) in enumerate(self._run):
            if target.rpartition(".")[2] in self._located:
                before = struct.calcsize(">" + "".join([layout for layout, _ in self._run[:number]]))
                self.source.add(f"places.append((start + offset + {before}, {each!r}))")
        layout = "".join([each for each, _ in self._run])
        targets = ", ".join([target for _, target in self._run])
        if layout == "B":
            self.source.add(f"{targets} = data[offset]")
        else:
            comma = "," if len(self._run) == 1 else ""
            self.source.add(f"{targets}{comma} = {self.source.method('unpack_from', layout)}(data, offset)")
        self._run.clear()
        return struct.calcsize(f">{layout}")

    def _tagged_reader(self, name: str, structure: StructureDefinition) -> None:
        """Define the function that reads the tagged fields of a structure."""
        source = self.source
        known = [each for each in structure.fields if each.tag is not None and self._version in each.versions]
        with source.block(f"def {name}(target, data, offset, left):"):
            source.add("end = len(data)")
            source.add("fields, offset = varint(data, offset)")
            source.add("check_tag_count(fields)")
            with source.block("for _ in range(fields):"):
                source.add("tag, offset = varint(data, offset)")
                source.add("size, offset = varint(data, offset)")
                source.add("behind = offset + size")
                source.add("check_size('', behind <= end)")
                word = "if"
                for field in known:
                    with source.block(f"{word} tag == {field.tag}:"):
                        self._field(field, f"target.{field.name}")
                        self._flush()
                        source.add(f"check_size({field.name!r}, offset == behind)")
                    word = "elif"
                source.add("else: offset = behind")
            source.add("return offset, left")
