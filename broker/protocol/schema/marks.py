"""The positions of fields with a meaning of their own: error codes, resources of a request, the throttle time.

Derived from Kafka's definitions when first used, by the names and entity types of the fields. Encoders, templates and
caches write no throttle time: it is written into a finished response. Run by every process; pure.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator, Mapping
from functools import cache
from types import MappingProxyType
from typing import Any, Final, NamedTuple

from rotunda.broker.protocol.api_keys import ApiKey, is_flexible, response_header_version
from rotunda.broker.protocol.error_codes import ErrorCode
from rotunda.broker.protocol.primitives import Buffer, read_unsigned_varint
from rotunda.broker.protocol.schema.definitions import Field, StructureDefinition, request, response
from rotunda.broker.protocol.schema.source import FIXED

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


#: After the size and the correlation id; flexible headers have a byte more.
_BODY: Final = 8
_INT16: Final = struct.Struct(">h")
_INT32: Final = struct.Struct(">i")
_EMPTY_TAGS_BYTES: Final = 1
_FIELD: Final = "throttle_time_ms"


class _Place(NamedTuple):
    """The offset of the throttle time: after an array if its elements have a size, from the end if it is negative."""

    offset: int
    element_bytes: int = 0


def throttle_place(api_key: int, version: int, wire: Buffer) -> int:
    """Return where a whole response, from its size on, has its throttle time; -1 if it has none (`E16`)."""
    if api_key == ApiKey.API_VERSIONS and _INT16.unpack_from(wire, _BODY)[0] == ErrorCode.UNSUPPORTED_VERSION:
        # Version 0, whatever the version of the request.
        return -1
    place = _place(api_key, version)
    if place is None:
        return -1
    at, element_bytes = place
    if element_bytes:
        if is_flexible(api_key, version):
            count, at = read_unsigned_varint(wire, at)
            return at + (count - 1) * element_bytes
        return at + _INT32.size + int(_INT32.unpack_from(wire, at)[0]) * element_bytes
    return at if at >= 0 else len(wire) + at


def with_throttle_time(api_key: int, version: int, wire: bytes, throttle_ms: int) -> bytes:
    """Return a response with that throttle time; as it is if it has no place for one."""
    at = throttle_place(api_key, version, wire)
    if at < 0:
        return wire
    return b"".join((wire[:at], throttle_time(throttle_ms), wire[at + _INT32.size :]))


def throttle_time(throttle_ms: int) -> bytes:
    return _INT32.pack(throttle_ms)


@cache
def _place(api_key: int, version: int) -> _Place | None:
    fields = [each for each in response(api_key).structure.fields if version in each.versions and each.tag is None]
    index = next((number for number, each in enumerate(fields) if each.name == _FIELD), None)
    if index is None:
        return None
    tags_bytes = _EMPTY_TAGS_BYTES if is_flexible(api_key, version) else 0
    offset = _BODY + response_header_version(api_key, version)
    for field in fields[:index]:
        if not field.is_array and field.kind in FIXED:
            offset += _fixed_bytes([field])
            continue
        inner = [each for each in field.structure.fields if version in each.versions] if field.structure else []
        if field is fields[index - 1] and inner and all(each.kind in FIXED for each in inner):
            return _Place(offset, _fixed_bytes(inner) + tags_bytes)
        # No tagged field is written after it.
        return _Place(-_fixed_bytes(fields[index:]) - tags_bytes)
    return _Place(offset)


def _fixed_bytes(fields: list[Field]) -> int:
    return struct.calcsize(">" + "".join([FIXED[each.kind] for each in fields]))
