"""The positions of fields with a meaning of their own in a message: error codes, and the resources of a request.

Derived from Kafka's definitions when first used, by the names and entity types of the fields. Run by every process;
pure.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from functools import cache
from types import MappingProxyType
from typing import Any, Final, NamedTuple

from rotunda.broker.protocol.api_keys import ApiKey
from rotunda.broker.protocol.schema.definitions import Field, StructureDefinition, request, response

Path = tuple[str, ...]

#: The fields that name a topic.
TOPIC_NAMES: Final = ("name", "topic", "topic_name")

#: By API, the fields in which a client's repeated requests differ.
VARYING: Final[Mapping[int, tuple[str, ...]]] = MappingProxyType(
    {ApiKey.FETCH: ("session_epoch", "fetch_offset"), ApiKey.OFFSET_COMMIT: ("committed_offset",)}
)

#: An error of reading the settings of a topic, which has been created nevertheless.
_OF_SETTINGS: Final = "topic_config_error_code"


class AskedPartitions(NamedTuple):
    """The fields of a request with an array `partitions` in an array `topics`: the name of a topic, and the index.

    Partitions without a field are plain numbers.
    """

    topic: str
    partition: str
    has_isolation_level: bool


def error_field(structure: StructureDefinition, version: int) -> Field | None:
    """Return the error code of a structure itself, if it has one."""
    return next((each for each in structure.fields if version in each.versions and _is_error(each)), None)


def _is_error(field: Field) -> bool:
    return field.name.endswith("error_code") and field.name != _OF_SETTINGS


@cache
def error_paths(api_key: int) -> tuple[Path, ...]:
    """Return the paths of the error codes in the responses of an API, outer ones before inner ones."""
    return tuple(sorted(_paths(response(api_key).structure, _is_error), key=len))


@cache
def request_paths(api_key: int, names: str) -> tuple[Path, ...]:
    """Return the paths of the fields in the requests of an API that name a kind of thing.

    Kafka marks `topic_name`, `group_id`, `transactional_id` and `producer_id`; `topic_id` is known by its name.
    """
    return tuple(_paths(request(api_key).structure, lambda field: names in (field.names, field.name)))


def values_at(structure: Any, path: Path) -> Iterator[Any]:
    """Yield the values of the fields at a path of a message, one by one also of an array."""
    for number, name in enumerate(path):
        found = getattr(structure, name)
        if isinstance(found, tuple):
            for each in found:
                yield from values_at(each, path[number + 1 :])
            return
        if found is None:
            return
        structure = found
    yield structure


@cache
def asked_partitions(api_key: int) -> AskedPartitions | None:
    """Return where the requests of an API name their partitions; None if they name none."""
    fields = request(api_key).structure.fields
    topics = next((each.structure for each in fields if each.name == "topics" and each.structure), None)
    if topics is None:
        return None
    partitions = next((each for each in topics.fields if each.name == "partitions"), None)
    topic = next((each.name for each in topics.fields if each.names == "topic_name"), None)
    if partitions is None or topic is None:
        return None
    inner = partitions.structure.fields if partitions.structure is not None else ()
    partition = next((each.name for each in inner if each.name.startswith("partition")), "")
    has_isolation_level = any(each.name == "isolation_level" for each in fields)
    return AskedPartitions(topic, partition, has_isolation_level)


def _paths(structure: StructureDefinition, is_wanted: Callable[[Field], bool]) -> Iterator[Path]:
    for field in structure.fields:
        if field.structure is not None:
            yield from ((field.name, *path) for path in _paths(field.structure, is_wanted))
        elif is_wanted(field):
            yield (field.name,)
