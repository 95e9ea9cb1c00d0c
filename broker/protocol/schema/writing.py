"""Generates the function that writes one version of a message.

A structure is a `Structure` of its class or a mapping from field names to values. Fields
that the version lacks are dropped; a name that no version has is a TypeError. Tagged fields are written in the order of
their tags unless they have their default. Null is written as empty where only other versions allow null. The values are
this program's own: a wrong type is a bug and raises any exception.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from struct import pack
from typing import Any, Final, Protocol, TypeAlias

from rotunda.broker.protocol.primitives import tagged_fields_bytes, unsigned_varint_bytes
from rotunda.broker.protocol.schema.definitions import Field, MessageDefinition, Structure, StructureDefinition
from rotunda.broker.protocol.schema.source import FIXED, LONGEST_STRING_BYTES, Source

Write: TypeAlias = Callable[[Any], bytes]
"""value or mapping -> its bytes."""

WritePieces: TypeAlias = Callable[[Any], list[Any]]
"""value or mapping -> its bytes in pieces; a value of `bytes` or `records` is a piece itself, and needs only a size."""


class Slicing(Protocol):
    """Receives a message that is written in slices."""

    def write(self, data: bytes) -> None:
        """Add bytes at the end."""

    def elements(self, items: Any, write: WriteSliced, depth: int) -> Iterable[None]:
        """Write the elements of an array of structures, at this depth in the message."""


WriteSliced: TypeAlias = Callable[[Any, Slicing], Iterable[None]]
"""(value or mapping, receiver of its bytes) -> the slices in which it is written."""


def _shortened(text: bytes) -> bytes:
    """Return the start of a text, cut to the maximum length of a string. Messages repeat the values of requests."""
    return text[:LONGEST_STRING_BYTES].decode(errors="ignore").encode()


_GLOBALS: Final[dict[str, Any]] = {
    "VARINTS": tuple([bytes((value,)) for value in range(128)]),
    "pack": pack,
    "shortened": _shortened,
    "tagged_fields_bytes": tagged_fields_bytes,
    "varint": unsigned_varint_bytes,
}


def make_writer(message: MessageDefinition, version: int) -> Write:
    """Return the function that writes one version of a message."""
    write: Write = _WriterSource(message, version).compiled()
    return write


def make_pieces_writer(message: MessageDefinition, version: int) -> WritePieces:
    """Return the function that writes one version of a message in pieces."""
    write: WritePieces = _WriterSource(message, version, result="parts").compiled()
    return write


def make_sliced_writer(message: MessageDefinition, version: int, structure: StructureDefinition) -> WriteSliced:
    """Return the function that writes one version of a message, or of a structure in it, in slices."""
    write: WriteSliced = _SlicedWriterSource(message, version).of_structure(structure)
    return write


def made(message: MessageDefinition, value_class: type[Structure], values: Mapping[str, Any]) -> Structure:
    """Return a structure from a mapping; names that other structures of the message have are dropped.

    TypeError for a name that none has.
    """
    try:
        return value_class(**values)
    except TypeError:
        if unknown := values.keys() - message.names():
            raise TypeError(f"no version of {message.name} has a field {', '.join(sorted(unknown))}") from None
        return value_class(**{name: values[name] for name in values.keys() & value_class.DEFAULTS.keys()})


class _WriterSource:
    """The source of one writer.

    `_run`: fields of fixed size that are not written yet, as (layout, expression). `_pieces`: expressions of bytes that
    are not yet in the list that `_parts` names.
    """

    def __init__(self, message: MessageDefinition, version: int, result: str = "b''.join(parts)") -> None:
        self.source = Source({**_GLOBALS, "made": partial(made, message)})
        self._message = message
        self._title = f"write {message.name} {version}"
        self._version = version
        self._is_flexible = version in message.flexible
        self._run: list[tuple[str, str]] = []
        self._pieces: list[str] = []
        self._parts = "parts"
        self._result = result

    def compiled(self) -> Any:
        with self.source.block("def write(message):"):
            self.source.add("parts = []")
            self._structure(self._message.structure, "message")
            self._flush()
            self.source.add(f"return {self._result}")
        return self.source.compile(self._title)["write"]

    def _structure(self, structure: StructureDefinition, value: str) -> None:
        name = self.source.refer("Class", structure.value_class)
        self.source.add(f"if {value}.__class__ is not {name}: {value} = made({name}, {value})")
        present = [each for each in structure.fields if self._version in each.versions]
        for field in present:
            if field.tag is None:
                self._field(field, f"{value}.{field.name}")
        self._tagged([each for each in present if each.tag is not None], value)

    def _field(self, field: Field, value: str) -> None:
        is_nullable = self._version in field.nullable
        if field.is_array:
            self._array(field, value, is_nullable)
        elif field.structure is None:
            self._primitive(field, value, is_nullable)
        else:
            inner = self.source.name("inner")
            self.source.add(f"{inner} = {value}")
            if is_nullable:
                self._flush()
                with self.source.block(f"if {inner} is None:"):
                    self._run.append(("b", "-1" if field.tag is None else "0"))
                    self._flush()
                with self.source.block("else:"):
                    self._run.append(("b", "1"))
                    self._structure(field.structure, inner)
                    self._flush()
            else:
                self._structure(field.structure, inner)

    def _primitive(self, field: Field, value: str, is_nullable: bool) -> None:
        layout = FIXED.get(field.kind)
        if layout is not None:
            self._run.append((layout, value))
            return
        is_string = field.kind == "string"
        source = self.source
        data, length = source.name("data"), source.name("length")
        is_compact = self._is_flexible and not field.is_inflexible
        bias = " + 1" if is_compact else ""
        if is_nullable:
            source.add(f"{data} = {value}")
            source.add(f"if {data} is None: {data}, {length} = b'', {0 if is_compact else -1}")
            with source.block("else:"):
                if is_string:
                    source.add(f"{data} = {data}.encode()")
                if field.name.endswith("error_message"):
                    source.add(f"if len({data}) > {LONGEST_STRING_BYTES}: {data} = shortened({data})")
                source.add(f"{length} = len({data}){bias}")
        else:
            if field.nullable.highest >= 0:
                value = f"({value} or {'str' if is_string else 'bytes'}())"
            source.add(f"{data} = {value}{'.encode()' if is_string else ''}")
            source.add(f"{length} = len({data}){bias}")
        self._head("h" if is_string else "i", length, is_compact)
        self._pieces.append(data)

    def _head(self, layout: str, number: str, is_compact: bool) -> None:
        """Write a length or count after the fields that wait."""
        if not is_compact:
            self._run.append((layout, number))
            self._pack()
        elif self._run:
            waiting = self._run.copy()
            self._run.append(("B", number))
            fused, alone = self._packed(self._run), self._packed(waiting)
            self._pieces.append(f"({fused} if {number} < 128 else {alone} + varint({number}))")
            self._run.clear()
        else:
            self._pieces.append(f"(VARINTS[{number}] if {number} < 128 else varint({number}))")

    def _array(self, field: Field, value: str, is_nullable: bool) -> None:
        source = self.source
        items, count = source.name("items"), source.name("count")
        empty = "" if is_nullable or field.nullable.highest < 0 else " or ()"
        source.add(f"{items} = {value}{empty}")
        bias = " + 1" if self._is_flexible else ""
        null = 0 if self._is_flexible else -1
        alternative = f" if {items} is not None else {null}" if is_nullable else ""
        source.add(f"{count} = len({items}){bias}{alternative}")
        self._head("i", count, self._is_flexible)
        layout = FIXED.get(field.kind)
        if layout is not None and field.kind != "uuid":
            values = f"pack(f'>{{len({items})}}{layout}', *{items})"
            self._pieces.append(f"({values} if {items} else b'')")
            return
        self._flush()
        with source.block(f"if {items}:"):
            if field.kind == "uuid":
                source.add(f"{self._parts} += {items}")
            elif field.structure is None:
                with source.block(f"for item in {items}:"):
                    self._primitive(field, "item", is_nullable=False)
                    self._flush()
            else:
                self._structures(field.structure, items)

    def _structures(self, structure: StructureDefinition, items: str) -> None:
        item = self.source.name("item")
        with self.source.block(f"for {item} in {items}:"):
            self._structure(structure, item)
            self._flush()

    def _tagged(self, fields: Sequence[Field], value: str) -> None:
        """Write those of the tagged fields that do not have their default."""
        if not self._is_flexible:
            return
        if not fields:
            self._run.append(("B", "0"))
            return
        source = self.source
        tagged = source.name("tagged")
        source.add(f"{tagged} = []")
        self._flush()
        for field in sorted(fields, key=lambda each: each.tag or 0):
            inner = source.name("value")
            source.add(f"{inner} = {value}.{field.name}")
            if field.structure is not None and not field.is_array:
                name = source.refer("Class", field.structure.value_class)
                convert = f"{inner} = made({name}, {inner})"
                source.add(f"if {inner} is not None and {inner}.__class__ is not {name}: {convert}")
            with source.block(f"if {self._differs(field, inner)}:"):
                outer, self._parts = self._parts, source.name("parts")
                source.add(f"{self._parts} = []")
                self._field(field, inner)
                self._flush()
                source.add(f"{tagged}.append(({field.tag}, b''.join({self._parts})))")
                self._parts = outer
        self._pieces.append(f"(tagged_fields_bytes({tagged}) if {tagged} else VARINTS[0])")

    def _differs(self, field: Field, value: str) -> str:
        """Return the condition that a tagged field does not have its default. Invalid null is omitted."""
        default = f"{value} != {self.source.constant(field.default)}"
        if field.is_array and field.default is not None:
            default = f"({value} is None or len({value}))"
        return default if self._version in field.nullable else f"{value} is not None and {default}"

    def _packed(self, run: list[tuple[str, str]]) -> str:
        layout = "".join([each for each, _ in run])
        return f"{self.source.method('pack', layout)}({', '.join([value for _, value in run])})"

    def _pack(self) -> None:
        if self._run:
            self._pieces.append(self._packed(self._run))
            self._run.clear()

    def _flush(self) -> None:
        """Append everything that waits to the list of parts."""
        self._pack()
        if len(self._pieces) == 1:
            self.source.add(f"{self._parts}.append({self._pieces[0]})")
        elif self._pieces:
            self.source.add(f"{self._parts} += {', '.join(self._pieces)}")
        self._pieces.clear()


class _SlicedWriterSource(_WriterSource):
    """The source of a writer in slices: a function for each structure that is an element of an array.

    `_waiting`: the functions that are not generated yet, with their structure and the depth of their arrays.
    """

    def of_structure(self, structure: StructureDefinition) -> Any:
        source = self.source
        self._waiting = [("write", structure, 1)]
        while self._waiting:
            name, structure, self._depth = self._waiting.pop()
            with source.block(f"def {name}(message, slicing):"):
                source.add("parts = []")
                self._structure(structure, "message")
                self._flush()
                source.add("slicing.write(b''.join(parts))")
                source.add("return ()")
        return source.compile(self._title)["write"]

    def _structures(self, structure: StructureDefinition, items: str) -> None:
        if self._parts != "parts":
            # Tagged fields have their size before them.
            super()._structures(structure, items)
            return
        write = self.source.name("write")
        self._waiting.append((write, structure, self._depth + 1))
        self.source.add("slicing.write(b''.join(parts))")
        self.source.add("parts.clear()")
        self.source.add(f"yield from slicing.elements({items}, {write}, {self._depth})")
