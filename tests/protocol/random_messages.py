"""Random values of any version of any message, from Kafka's definitions."""

from __future__ import annotations

import random
from collections.abc import Iterator
from typing import Any

from rotunda.broker.protocol.schema.definitions import Field, MessageDefinition, StructureDefinition

_LETTERS = "ab.é€😀"
_BITS = {"int8": 8, "int16": 16, "uint16": 16, "int32": 32, "uint32": 32, "int64": 64}


def versions_of(message: MessageDefinition) -> range:
    """Return every version of a message."""
    return range(message.versions.lowest, message.versions.highest + 1)


def random_message(chance: random.Random, message: MessageDefinition, version: int) -> Any:
    """Return a message with random values in every field of the version."""
    return _structure(chance, message.structure, version)


def random_mapping(chance: random.Random, structure: StructureDefinition, version: int) -> dict[str, Any]:
    """Return the result of `random_message` for a structure, as mappings."""
    return _plain(_structure(chance, structure, version))


def present_fields(structure: StructureDefinition, version: int) -> Iterator[Field]:
    """Yield the fields that a version has."""
    return (field for field in structure.fields if version in field.versions)


def _plain(value: Any) -> Any:
    if isinstance(value, tuple):
        return tuple([_plain(each) for each in value])
    if hasattr(value, "DEFAULTS"):
        return {name: _plain(getattr(value, name)) for name in value.DEFAULTS}
    return value


def _structure(chance: random.Random, structure: StructureDefinition, version: int) -> Any:
    values = {field.name: _field(chance, field, version) for field in present_fields(structure, version)}
    return structure.value_class(**values)


def _field(chance: random.Random, field: Field, version: int) -> Any:
    if version in field.nullable and chance.random() < 0.3:
        return None
    if field.tag is not None and chance.random() < 0.3:
        return field.structure.value_class() if field.structure and field.default else field.default
    if not field.is_array:
        return _value(chance, field, version)
    # Occasionally an array whose count needs more than one byte.
    sizes = (0, 1, 2, 3) if field.structure else (0, 1, 2, 3, 4, 130)
    return tuple([_value(chance, field, version) for _ in range(chance.choice(sizes))])


def _value(chance: random.Random, field: Field, version: int) -> Any:
    if field.structure is not None:
        return _structure(chance, field.structure, version)
    kind = field.kind
    if kind in _BITS:
        lowest = 0 if kind.startswith("u") else -(1 << (_BITS[kind] - 1))
        return chance.choice((0, max(-1, lowest), lowest + chance.getrandbits(_BITS[kind])))
    if kind == "bool":
        return chance.random() < 0.5
    if kind == "float64":
        return chance.uniform(-1e9, 1e9)
    if kind == "uuid":
        return chance.choice((bytes(16), chance.randbytes(16)))
    size = chance.choice((0, 1, 2, 3, 5, 8, 13, 126, 127, 130))
    return "".join(chance.choices(_LETTERS, k=size)) if kind == "string" else chance.randbytes(size)
