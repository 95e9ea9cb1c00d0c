"""kio's generated message classes, and their fields as plain data: what reader and writer are put together from.

Of kio only the generated part is used. Its own reader and writer (`kio.serial`) load asyncio and ssl, for which a
broker has no use and its start no time. The class of a message takes some milliseconds to load, and is loaded when
it is first asked for.
"""

from collections.abc import Callable
from dataclasses import MISSING, fields, is_dataclass
from datetime import UTC, datetime, timedelta
from functools import cache
from types import NoneType, UnionType
from typing import Any, Final, NamedTuple, get_args, get_origin
from uuid import UUID

from broker.errors import InvalidReceive
from broker.import_guard import without

# Where hypothesis is installed kio registers its types with it, and loading it takes ten times as long as loading kio.
with without("hypothesis"):
    from kio.index import KioIndexError, load_request_schema, load_response_schema
    from kio.schema import errors
    from kio.schema.index import api_key_map, schema_name_map
    from kio.static.constants import EntityType

#: kio's own; `broker.protocol.error_codes` has ours.
KioErrorCode = errors.ErrorCode

EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
MILLISECOND: Final = timedelta(milliseconds=1)

_ZEROS: Final[dict[str, Any]] = {
    "string": "",
    "bytes": b"",
    "records": b"",
    "bool": False,
    "float64": 0.0,
    "uuid": UUID(int=0),
    "error_code": KioErrorCode(0),
    "timedelta_i32": timedelta(0),
    "timedelta_i64": timedelta(0),
    "datetime_i64": EPOCH,
}


class SchemaField(NamedTuple):
    """One field of a message class. A structure has a class and no type, anything else a type and no class."""

    name: str
    kafka_type: str
    structure: Any
    is_array: bool
    is_nullable: bool
    tag: int | None
    default: Any
    """What a field that is left out holds: what the schema says, else null, else nothing, else zero."""


@cache
def request_class(api_key: int, version: int) -> type[Any]:
    """Return kio's class for a request; InvalidReceive when kio knows no such API or version."""
    try:
        return load_request_schema(api_key, version)
    except KioIndexError as error:
        raise _unknown(api_key, version) from error


@cache
def response_class(api_key: int, version: int) -> type[Any]:
    """Return kio's class for a response; InvalidReceive when kio knows no such API or version."""
    try:
        return load_response_schema(api_key, version)
    except KioIndexError as error:
        raise _unknown(api_key, version) from error


def newest_request_class(api_key: int) -> type[Any]:
    """Return kio's class for the newest version of a request that it knows."""
    return request_class(api_key, max(_versions(api_key, EntityType.request)))


def _versions(api_key: int, entity_type: Any) -> list[int]:
    return [version for version, kinds in schema_name_map[api_key_map[api_key]].items() if entity_type in kinds]


def _unknown(api_key: int, version: int) -> InvalidReceive:
    return InvalidReceive(f"no schema for api key {api_key} version {version}")


@cache
def fields_of(message_class: Any) -> tuple[SchemaField, ...]:
    """Return the fields of a message or of a structure in it, in the order in which they are written."""
    return tuple([_field(each) for each in fields(message_class)])


def _field(field: Any) -> SchemaField:
    inner, is_nullable = _without_null(field.type)
    is_array = get_origin(inner) is tuple
    if is_array:
        inner, _ = _without_null(get_args(inner)[0])
    structure = inner if is_dataclass(inner) else None
    kafka_type = "" if structure else field.metadata["kafka_type"]
    default = field.default
    if default is MISSING:
        default = _nothing(kafka_type, structure, is_array, is_nullable)
    tag = field.metadata.get("tag")
    return SchemaField(field.name, kafka_type, structure, is_array, is_nullable, tag, default)


def _without_null(annotated: Any) -> tuple[Any, bool]:
    """Return a field's type without null, and whether it may be null."""
    if get_origin(annotated) is not UnionType:
        return annotated, False
    (inner,) = [each for each in get_args(annotated) if each is not NoneType]
    return inner, True


def _nothing(kafka_type: str, structure: Any, is_array: bool, is_nullable: bool) -> Any:
    if is_nullable:
        return None
    if is_array:
        return ()
    if structure is not None:
        return structure(**{each.name: each.default for each in fields_of(structure)})
    return _ZEROS.get(kafka_type, 0)


def is_request_name(api_key: int, name: str) -> bool:
    """Return whether a request has a field of that name at any depth, in any version."""
    return _is_name(api_key, EntityType.request, request_class, name)


def is_response_name(api_key: int, name: str) -> bool:
    """Return whether a response has a field of that name at any depth, in any version."""
    return _is_name(api_key, EntityType.response, response_class, name)


def _is_name(api_key: int, entity_type: Any, class_of: Callable[[int, int], Any], name: str) -> bool:
    # The newest version has nearly every name there is, so that the others need not be loaded.
    versions = sorted(_versions(api_key, entity_type), reverse=True)
    return any(name in _names_of(class_of(api_key, version)) for version in versions)


@cache
def _names_of(message_class: Any) -> frozenset[str]:
    names: set[str] = set()
    for field in fields_of(message_class):
        names.update(described_names(field))
        if field.structure is not None:
            names |= _names_of(field.structure)
    return frozenset(names)


def described_names(field: SchemaField) -> tuple[str, ...]:
    """Return kio's name and, for what kio turns into a time or duration, Kafka's name in milliseconds."""
    if field.kafka_type.startswith(("timedelta", "datetime")):
        return field.name, f"{field.name}_ms"
    return (field.name,)
