"""Answers with an error that was injected, in the shape that each API and version has for errors.

Runs in targets. Two ways lead to one: `refusal` makes the answer to a request of which nothing is done, from what the
request names, and `altered` puts the error into the answer of a request that changes nothing anyhow. As in Kafka the
error is in the outermost structure that has a field for one.
"""

from __future__ import annotations

from typing import Any, Final

from broker.protocol import codec
from broker.protocol.api_keys import ApiKey
from broker.protocol.schema.definitions import Field, StructureDefinition, response
from broker.protocol.schema.values import Structure

MESSAGE: Final = "injected by a test"

#: Of these the outermost error says something else, or has come late.
_NOT_OUTERMOST: Final = frozenset({ApiKey.METADATA})

#: Where answers name their elements otherwise than requests do: under which names, the first that is there.
_COUNTERPARTS: Final = {
    "responses": ("topics", "topic_names", "resources"),
    "results": ("groups_names", "topics"),
    "partitions": ("partitions", "partition_indexes"),
    "results_by_topic_v3_and_below": ("v3_and_below_topics",),
    "results_by_partition": ("partitions",),
}
_TOPIC_NAMES: Final = ("name", "topic", "topic_name")


def refusal(api: int, version: int, correlation_id: int, request: Any, error: int) -> bytes:
    """Return the response to a request that is not carried out: each of its elements has the error."""
    values = _mirrored(response(api).structure, version, request, error)
    return codec.encode_response(api, version, correlation_id, values)


def altered(api: int, version: int, correlation_id: int, wire: bytes, error: int, topic: str | None) -> bytes | None:
    """Return a response with the error in it, for one topic alone if one is named; None if it has no field for it."""
    entity = codec.decode_response(api, version, wire, 4, len(wire))
    change = _Change(version, error)
    changed = change.altered(response(api).structure, entity, topic, is_outermost=api not in _NOT_OUTERMOST)
    return None if changed is entity else codec.encode_response(api, version, correlation_id, changed)


def _mirrored(structure: StructureDefinition, version: int, asked: Any, error: int) -> Any:
    """Return a structure of the response to one of the request, or to a plain value in it."""
    place = _place_of_error(structure, version)
    values: dict[str, Any] = {}
    is_key_known = isinstance(asked, Structure)
    for field in _present(structure, version):
        if field is place:
            values[field.name] = error
        elif field.name == "error_message":
            values[field.name] = MESSAGE
        elif field.structure is not None and field.is_array:
            elements = () if place is not None or not is_key_known else _counterparts(field.name, asked)
            values[field.name] = tuple([_mirrored(field.structure, version, each, error) for each in elements])
        elif field.structure is not None or _is_error(field):
            continue
        elif is_key_known:
            found = getattr(asked, field.name, None)
            if found is not None or version in field.nullable:
                values[field.name] = found
        elif isinstance(asked, type(field.default)):
            values[field.name], is_key_known = asked, True
    return structure.value_class(**values)


def _counterparts(name: str, request: Any) -> tuple[Any, ...]:
    """Return the elements of a request that an array of the response is about."""
    candidates = (getattr(request, each, None) for each in _COUNTERPARTS.get(name, (name,)))
    return next((found for found in candidates if found), ())


class _Change:
    """Puts an error into responses of one version."""

    def __init__(self, version: int, error: int) -> None:
        self._version = version
        self._error = error

    def altered(
        self, structure: StructureDefinition, entity: Any, topic: str | None, *, is_outermost: bool = True
    ) -> Any:
        """Return a structure with the error; the same object if it has no field for it."""
        place = _place_of_error(structure, self._version)
        arrays = [each for each in _present(structure, self._version) if each.structure is not None and each.is_array]
        if topic is None and place is not None and is_outermost:
            return entity.replaced(**{each.name: () for each in arrays} | {place.name: self._error})
        changes = {}
        for field in arrays:
            elements = getattr(entity, field.name)
            if not elements or field.structure is None:
                continue
            changed = tuple([self._altered_element(field.structure, each, topic) for each in elements])
            if any(new is not old for new, old in zip(changed, elements, strict=True)):
                changes[field.name] = changed
        return entity.replaced(**changes) if changes else entity

    def _altered_element(self, structure: StructureDefinition, element: Any, topic: str | None) -> Any:
        names = [getattr(element, name) for name in _TOPIC_NAMES if hasattr(element, name)]
        if topic is not None and names:
            return self.altered(structure, element, None) if topic in names else element
        return self.altered(structure, element, topic)


def _present(structure: StructureDefinition, version: int) -> list[Field]:
    return [each for each in structure.fields if version in each.versions]


def _is_error(field: Field) -> bool:
    return field.kind == "int16" and field.name.endswith("error_code") and not field.is_array


def _place_of_error(structure: StructureDefinition, version: int) -> Field | None:
    """Return the field that has the error of a structure itself."""
    found = (each for each in _present(structure, version) if _is_error(each))
    return next((each for each in found if each.name != "topic_config_error_code"), None)
