"""Requests by kio's schema in which one array has any number of elements, for every array that an API has."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from broker.protocol.kio import kio_adapter
from broker.protocol.kio.kio_schema import SchemaField, fields_of, request_class

#: The fields that lead to an array, from the outermost on.
Path = tuple[str, ...]

#: By the beginning of a type's name, what makes the value of a field that is in the element of this number.
_VALUES = {
    "string": lambda number: f"n{number}",
    "bytes": lambda _: b"",
    "records": lambda _: b"",
    "bool": lambda _: False,
    "uuid": lambda number: (number + 1).to_bytes(16, "big"),
    "float": float,
    "timedelta": lambda _: 1000,
    "datetime": lambda _: 1000,
    "int8": lambda number: number % 2,
    "int16": lambda _: 1,
}


def arrays_of(api_key: int, version: int) -> list[Path]:
    """Return where a request has arrays, tagged fields apart."""
    return list(_arrays_in(request_class(api_key, version), ()))


def request_with(api_key: int, version: int, path: Path, elements: int) -> bytes:
    """Return a request from its api key on; of the arrays around that of ``path``, each has one element.

    So has each array in one of its elements: they all count as elements.
    """
    message_class = request_class(api_key, version)
    inner = sum(each[: len(path)] == path for each in _arrays_in(message_class, ()))
    values = _values_of(message_class, 0, (), path, elements // max(inner, 1))
    return kio_adapter.encode_request(api_key, version, 7, "client", values)[4:]


def _arrays_in(message_class: Any, path: Path) -> Iterator[Path]:
    for field in _plain_fields(message_class):
        here = (*path, field.name)
        if field.is_array:
            yield here
        if field.structure is not None:
            yield from _arrays_in(field.structure, here)


def _plain_fields(message_class: Any) -> list[SchemaField]:
    return [field for field in fields_of(message_class) if field.tag is None]


def _values_of(message_class: Any, number: int, here: Path, path: Path, elements: int) -> dict[str, Any]:
    def value(field: SchemaField, number: int) -> Any:
        if field.structure is not None:
            return _values_of(field.structure, number, (*here, field.name), path, elements)
        for name, make in _VALUES.items():
            if field.kafka_type.startswith(name):
                return make(number)
        return number

    def values(field: SchemaField) -> Any:
        if not field.is_array:
            return value(field, number)
        return [value(field, each) for each in range(elements if (*here, field.name) == path else 1)]

    return {field.name: values(field) for field in _plain_fields(message_class)}
