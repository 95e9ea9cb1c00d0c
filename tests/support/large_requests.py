"""Requests in which one array has any number of elements, for every array that an API has."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from rotunda.broker.protocol import codec
from rotunda.broker.protocol.schema.definitions import Field, StructureDefinition, request

#: The fields that lead to an array, from the outermost on.
Path = tuple[str, ...]

#: By the prefix of a type's name: the function that makes a field's value in the element of this number.
_VALUES = {
    "string": lambda number: f"n{number}",
    "bytes": lambda _: b"",
    "records": lambda _: b"",
    "bool": lambda _: False,
    "uuid": lambda number: (number + 1).to_bytes(16, "big"),
    "float": float,
    "int8": lambda number: number % 2,
    "int16": lambda _: 1,
}


def arrays_of(api_key: int, version: int) -> list[Path]:
    """Return where a request has arrays, tagged fields apart."""
    return list(_arrays_in(request(api_key).structure, version, ()))


def request_with(api_key: int, version: int, path: Path, elements: int) -> bytes:
    """Return a request from its api key on; of the arrays around that of ``path``, each has one element.

    So has each array in one of its elements: they all count as elements.
    """
    structure = request(api_key).structure
    inner = sum(each[: len(path)] == path for each in _arrays_in(structure, version, ()))
    values = _Values(version, path, elements // max(inner, 1)).of(structure, 0, ())
    return codec.encode_request(api_key, version, 7, "client", values)[4:]


def _arrays_in(structure: StructureDefinition, version: int, path: Path) -> Iterator[Path]:
    for field in _plain_fields(structure, version):
        here = (*path, field.name)
        if field.is_array:
            yield here
        if field.structure is not None:
            yield from _arrays_in(field.structure, version, here)


def _plain_fields(structure: StructureDefinition, version: int) -> list[Field]:
    return [field for field in structure.fields if version in field.versions and field.tag is None]


class _Values:
    def __init__(self, version: int, path: Path, elements: int) -> None:
        self.version, self.path, self.elements = version, path, elements

    def of(self, structure: StructureDefinition, number: int, here: Path) -> dict[str, Any]:
        """Return the values of a structure in the element of this number."""
        return {field.name: self._field(field, number, here) for field in _plain_fields(structure, self.version)}

    def _field(self, field: Field, number: int, here: Path) -> Any:
        if not field.is_array:
            return self._value(field, number, here)
        elements = self.elements if (*here, field.name) == self.path else 1
        return [self._value(field, each, here) for each in range(elements)]

    def _value(self, field: Field, number: int, here: Path) -> Any:
        if field.structure is not None:
            return self.of(field.structure, number, (*here, field.name))
        if field.name.endswith("_ms"):
            return 1000
        for name, make in _VALUES.items():
            if field.kind.startswith(name):
                return make(number)
        return number
