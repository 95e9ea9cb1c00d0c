"""Answers with an error that was injected, in the shape that each API and version has for errors.

Runs in targets. Two ways lead to one: `refusal` makes the answer to a request of which nothing is done, from what the
request names, and `altered` puts the error into the answer of a request that changes nothing anyhow. Either is by kio's
classes, which have every API in every version. As in Kafka the error stands as far out as there is a place for it.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Final

from broker.protocol.api_keys import ApiKey
from broker.protocol.headers import framed, response_header
from broker.protocol.kio import kio_adapter
from broker.protocol.kio.kio_schema import KioErrorCode, SchemaField, fields_of, response_class
from broker.protocol.kio.kio_writer import write_message

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
    """Return the answer to a request, which is kio's object, of which nothing is done: each element has the error."""
    entity = _mirrored(response_class(api, version), request, error)
    return framed(response_header(api, version, correlation_id) + write_message(entity))


def altered(api: int, version: int, correlation_id: int, wire: bytes, error: int, topic: str | None) -> bytes | None:
    """Return an answer with the error in it, for one topic alone if one is named; None if it has no place for it."""
    entity = kio_adapter.decode_response(api, version, wire, 4, len(wire))
    changed = _altered(entity, error, topic, is_outermost=api not in _NOT_OUTERMOST)
    if changed is entity:
        return None
    return framed(response_header(api, version, correlation_id) + write_message(changed))


def _mirrored(message_class: Any, asked: Any, error: int) -> Any:
    """Return a structure of the answer to one of the request, or to a plain value in it."""
    fields = fields_of(message_class)
    place = _place_of_error(message_class)
    values = {field.name: field.default for field in fields}
    is_key_known = hasattr(asked, "__dataclass_fields__")
    for field in fields:
        if field is place:
            values[field.name] = KioErrorCode(error)
        elif field.name == "error_message":
            values[field.name] = MESSAGE
        elif field.structure is not None and field.is_array:
            elements = () if place is not None or not is_key_known else _counterparts(field.name, asked)
            values[field.name] = tuple(_mirrored(field.structure, each, error) for each in elements)
        elif field.structure is not None or field.kafka_type == "error_code":
            continue
        elif is_key_known:
            said = getattr(asked, field.name, None)
            values[field.name] = field.default if said is None and not field.is_nullable else said
        elif isinstance(asked, type(field.default)):
            values[field.name], is_key_known = asked, True
    return message_class(**values)


def _counterparts(name: str, request: Any) -> tuple[Any, ...]:
    """Return the elements of a request that an array of the answer is about."""
    candidates = (getattr(request, each, None) for each in _COUNTERPARTS.get(name, (name,)))
    return next((found for found in candidates if found), ())


def _altered(entity: Any, error: int, topic: str | None, *, is_outermost: bool = True) -> Any:
    """Return a structure with the error; the same object if it has no place for it."""
    place = _place_of_error(_class_of(entity))
    if topic is None and place is not None and is_outermost:
        inner = {each.name: () for each in _fields(entity) if each.structure is not None and each.is_array}
        return replace(entity, **{**inner, place.name: KioErrorCode(error)})
    changes = {}
    for field in _fields(entity):
        elements = getattr(entity, field.name)
        if field.structure is None or not field.is_array or not elements:
            continue
        changed = tuple(_altered_element(each, error, topic) for each in elements)
        if any(new is not old for new, old in zip(changed, elements, strict=True)):
            changes[field.name] = changed
    return replace(entity, **changes) if changes else entity


def _altered_element(element: Any, error: int, topic: str | None) -> Any:
    names = [getattr(element, name) for name in _TOPIC_NAMES if hasattr(element, name)]
    if topic is not None and names:
        return _altered(element, error, None) if topic in names else element
    return _altered(element, error, topic)


def _fields(entity: Any) -> tuple[SchemaField, ...]:
    return fields_of(_class_of(entity))


def _class_of(entity: Any) -> Any:
    return type(entity)


def _place_of_error(message_class: Any) -> SchemaField | None:
    """Return the field that has the error of a structure itself."""
    found = (each for each in fields_of(message_class) if each.kafka_type == "error_code" and not each.is_array)
    return next((each for each in found if each.name != "topic_config_error_code"), None)
