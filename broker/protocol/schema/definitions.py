"""Parses the table of Kafka's message definitions, one message at a time, when it is first used.

Used by `broker.protocol.codec` and by whatever needs to know the fields of a message. An entry of the table is:

    request 1 4-18 12+                                   kind, API key or -, valid versions, flexible versions
    cluster_id string 12+ null=12+ tag=0 default=null    a field: name, type, versions, then what applies of:
    topics []FetchTopic 0+                                 null=VERSIONS  versions in which it may be null
     topic string 0-12 is=topic_name                       tag=N          it is a tagged field
     topic_id uuid 13+                                     default=VALUE  unless zero or empty
                                                           is=NAME        what kind of thing it names
                                                           inflexible     a string that keeps its two-byte length
    struct Cursor                                        a structure that several fields share

The fields of a structure are indented by one space more than the field, or the line `struct`, that they belong to.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any, ClassVar, Final, NamedTuple

from rotunda.broker.protocol.schema.table import APIS, MESSAGES


class Structure:
    """A message or a structure in one: one class for all versions. The arguments are its fields, each with its default.

    Fields have Kafka's names in snake case. Times and error codes are plain numbers, ids 16 bytes, arrays tuples where
    they were read and any sequence where they are to be written. A field that the version lacks has its default. Values
    must not be changed once they are made: messages share the defaults.
    """

    __slots__ = ()
    __hash__ = None  # type: ignore[assignment]

    DEFAULTS: ClassVar[Mapping[str, Any]]

    def replaced(self, **changes: Any) -> Any:
        """Return a copy in which some fields have other values."""
        return self.__class__(**{name: getattr(self, name) for name in self.DEFAULTS} | changes)

    def __eq__(self, other: object) -> bool:
        if self.__class__ is not other.__class__:
            return NotImplemented
        return all(getattr(self, name) == getattr(other, name) for name in self.DEFAULTS)

    def __repr__(self) -> str:
        fields = ", ".join([f"{name}={getattr(self, name)!r}" for name in self.DEFAULTS])
        return f"{self.__class__.__name__}({fields})"

    def __getattr__(self, name: str) -> Any:
        """Raise AttributeError: for type checkers, which do not know the fields."""
        raise AttributeError(f"{self.__class__.__name__} has no field {name!r}")


def structure_class(name: str, defaults: Mapping[str, Any]) -> type[Structure]:
    """Return a new class for a structure with these fields."""
    parameters = ", ".join([f"{field}=defaults[{field!r}]" for field in defaults])
    lines = [f"def __init__(self, *, {parameters}):" if parameters else "def __init__(self):"]
    lines += [f"    self.{field} = {field}" for field in defaults] or ["    pass"]
    namespace: dict[str, Any] = {"defaults": defaults}
    exec("\n".join(lines), namespace)  # noqa: S102 - of names in the generated table
    body = {"__slots__": tuple(defaults), "__init__": namespace["__init__"], "DEFAULTS": defaults}
    return type(name, (Structure,), body)


_ZEROS: Final[dict[str, Any]] = {
    "bool": False,
    "float64": 0.0,
    "string": "",
    "bytes": b"",
    "records": b"",
    "uuid": bytes(16),
}
_NUMBERS: Final = frozenset({"int8", "int16", "uint16", "int32", "uint32", "int64"})
_HIGHEST: Final = 32767


class Versions(NamedTuple):
    """A range of versions, empty if `highest` is below `lowest`."""

    lowest: int
    highest: int

    def __contains__(self, version: object) -> bool:
        return isinstance(version, int) and self.lowest <= version <= self.highest


_NONE: Final = Versions(0, -1)


@dataclass(frozen=True, slots=True)
class Field:
    """One field of a structure. `kind` is Kafka's primitive type; a structure has a definition instead."""

    name: str
    kind: str
    structure: StructureDefinition | None
    is_array: bool
    versions: Versions
    nullable: Versions
    tag: int | None
    default: Any
    names: str
    """Kind of the named resource (`topic_name`, `group_id`), or empty."""
    is_inflexible: bool


@dataclass(frozen=True, slots=True)
class StructureDefinition:
    """A message or a structure in one: its fields in Kafka's order and the class of its values."""

    fields: tuple[Field, ...]
    value_class: type[Structure]


@dataclass(frozen=True, slots=True)
class MessageDefinition:
    """One message in all its versions. `kind`: request, response, header, data, key or value."""

    name: str
    kind: str
    api_key: int
    versions: Versions
    flexible: Versions
    structure: StructureDefinition

    def names(self) -> frozenset[str]:
        """Return the names of the fields at any depth, of all versions."""
        return frozenset(_names(self.structure))


def _names(structure: StructureDefinition) -> Iterator[str]:
    for field in structure.fields:
        yield field.name
        if field.structure is not None:
            yield from _names(field.structure)


def definition(name: str, own_fields: str = "") -> MessageDefinition:
    """Return the definition of a message by Kafka's name. KeyError for an unknown name.

    `own_fields`: lines of fields that Kafka's message does not have, with tags that its readers skip.
    """
    return _definition(name, own_fields)


@cache
def _definition(name: str, own_fields: str) -> MessageDefinition:
    head, *lines = MESSAGES[name].splitlines()
    lines = [*own_fields.splitlines(), *lines]
    kind, key, valid, flexible = head.split()
    shared: dict[str, StructureDefinition] = {}
    start = next((number for number, line in enumerate(lines) if line.startswith("struct ")), len(lines))
    blocks = _blocks(lines[start:], 0)
    # A shared structure may use one that follows it.
    while blocks:
        block = next(each for each in blocks if _needed(each, blocks) <= shared.keys())
        blocks.remove(block)
        structure_name = block[0].split()[1]
        shared[structure_name] = _structure(structure_name, block[1:], 1, shared)
    structure = _structure(name, lines[:start], 0, shared)
    return MessageDefinition(name, kind, int(key.replace("-", "-1")), _range(valid), _range(flexible), structure)


def request(api_key: int) -> MessageDefinition:
    """Return the definition of an API's request. KeyError for an unknown API."""
    return definition(f"{APIS[api_key]}Request")


def response(api_key: int) -> MessageDefinition:
    """Return the definition of an API's response. KeyError for an unknown API."""
    return definition(f"{APIS[api_key]}Response")


def _needed(block: list[str], blocks: list[list[str]]) -> set[str]:
    """Return the names of the shared structures that a shared structure uses."""
    names = {each[0].split()[1] for each in blocks}
    return names & {line.split()[1].removeprefix("[]") for line in block[1:]}


def _blocks(lines: list[str], depth: int) -> list[list[str]]:
    """Return the lines of each field or shared structure together with those of its own fields."""
    found: list[list[str]] = []
    for line in lines:
        if line[depth] == " ":
            found[-1].append(line)
        else:
            found.append([line])
    return found


def _structure(name: str, lines: list[str], depth: int, shared: dict[str, StructureDefinition]) -> StructureDefinition:
    fields = tuple([_field(block, depth, shared) for block in _blocks(lines, depth)])
    return StructureDefinition(fields, structure_class(name, {each.name: each.default for each in fields}))


def _field(block: list[str], depth: int, shared: dict[str, StructureDefinition]) -> Field:
    name, type_name, versions, *rest = block[0].split()
    options = dict([word.partition("=")[::2] for word in rest])
    kind = type_name.removeprefix("[]")
    structure = None
    if kind not in _ZEROS and kind not in _NUMBERS:
        structure = _structure(kind, block[1:], depth + 1, shared) if len(block) > 1 else shared[kind]
        kind = ""
    is_array = type_name.startswith("[]")
    tag = options.get("tag")
    return Field(
        name=name,
        kind=kind,
        structure=structure,
        is_array=is_array,
        versions=_range(versions),
        nullable=_range(options.get("null", "none")),
        tag=None if tag is None else int(tag),
        default=_default(options.get("default"), kind, structure, is_array),
        names=options.get("is", ""),
        is_inflexible="inflexible" in options,
    )


def _default(text: str | None, kind: str, structure: StructureDefinition | None, is_array: bool) -> Any:
    if text is not None:
        if text == "null":
            return None
        if kind == "bool":
            return True
        return text if kind == "string" else int(text)
    if is_array:
        return ()
    return _ZEROS.get(kind, 0) if structure is None else structure.value_class()


def _range(text: str) -> Versions:
    """Return the versions of `0+`, `3`, `4-18` or `none`."""
    if text == "none":
        return _NONE
    if text.endswith("+"):
        return Versions(int(text[:-1]), _HIGHEST)
    lowest, _, highest = text.partition("-")
    return Versions(int(lowest), int(highest or lowest))
