"""Writes injected errors into the responses of requests that change nothing; `error_responses` rejects the others.

Runs in targets. As in Kafka the error is in the outermost structure that has a field for one.
"""

from __future__ import annotations

from typing import Any, Final

from rotunda.broker.protocol import codec
from rotunda.broker.protocol.api_keys import ApiKey
from rotunda.broker.protocol.schema.definitions import Field, StructureDefinition, response
from rotunda.broker.protocol.schema.marks import TOPIC_NAMES, error_field

MESSAGE: Final = "injected by a test"

#: APIs whose outermost error has another meaning, or is missing in older versions.
_NOT_OUTERMOST: Final = frozenset({ApiKey.METADATA})


def altered(api: int, version: int, correlation_id: int, wire: bytes, error: int, topic: str | None) -> bytes | None:
    """Return a response with the error, only for a topic if one is named; None if there is no field for it."""
    entity = codec.decode_response(api, version, wire, 4, len(wire))
    change = _Change(version, error)
    changed = change.altered(response(api).structure, entity, topic, is_outermost=api not in _NOT_OUTERMOST)
    return None if changed is entity else codec.encode_response(api, version, correlation_id, changed)


class _Change:
    """Writes an error into responses of one version."""

    def __init__(self, version: int, error: int) -> None:
        self._version = version
        self._error = error

    def altered(
        self, structure: StructureDefinition, entity: Any, topic: str | None, *, is_outermost: bool = True
    ) -> Any:
        """Return a structure with the error; the same object if it has no field for it."""
        place = error_field(structure, self._version)
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
        names = [getattr(element, name) for name in TOPIC_NAMES if hasattr(element, name)]
        if topic is not None and names:
            return self.altered(structure, element, None) if topic in names else element
        return self.altered(structure, element, topic)


def _present(structure: StructureDefinition, version: int) -> list[Field]:
    return [each for each in structure.fields if version in each.versions]
