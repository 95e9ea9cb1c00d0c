"""The names of topics and groups that a request brings, whatever its API: by the names of the fields they stand in.

Runs in targets, for requests that a fault may strike, and in the process of the tests, which asks what an API can
name at all. Names inside of what only clients read, such as the subscriptions of the classic protocol, are not found.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import cache
from typing import Any, NamedTuple

from broker.protocol.api_keys import ApiKey
from broker.protocol.schema.definitions import StructureDefinition
from broker.protocol.schema.definitions import request as request_definition
from broker.protocol.schema.values import Structure

_GROUPS = frozenset({"group_id", "groups", "groups_names", "group_ids"})
#: What FindCoordinator asks for: of groups if the type of the key says so.
_KEYS = frozenset({"key", "coordinator_keys"})
_GROUP_KEY = 0
_NAMES = frozenset({"name", "topic", "topic_name", "topics", "topic_names", "subscribed_topic_names"})
_ID = "topic_id"

#: Returns the name of the topic that has an id, None if there is none.
NameOf = Callable[[bytes], str | None]


class RequestNames(NamedTuple):
    """What a request names."""

    topics: frozenset[str]
    groups: frozenset[str]


def names_in(api: int, request: Any, name_of: NameOf) -> RequestNames:
    """Return what a request names, which is a compiled message."""
    topics, groups = set(), set()
    for path, value in _values(request, ""):
        field = path.rpartition(".")[2]
        if field == _ID and isinstance(value, bytes):
            topics.add(name_of(value) or "")
        elif not isinstance(value, str):
            continue
        elif field in _GROUPS or (field in _KEYS and _asks_for_groups(api, request)):
            groups.add(value)
        elif field in _NAMES and "topic" in path:
            topics.add(value)
    return RequestNames(frozenset(topics - {""}), frozenset(groups - {""}))


@cache
def can_name(api: ApiKey) -> tuple[bool, bool]:
    """Return whether requests of an API can name topics, and groups."""
    if api == ApiKey.FETCH:
        return True, False
    paths = list(_paths(request_definition(api).structure, ""))
    fields = {path: path.rpartition(".")[2] for path in paths}
    topics = any(field == _ID or (field in _NAMES and "topic" in path) for path, field in fields.items())
    return topics, any(field in _GROUPS | _KEYS for field in fields.values())


def _asks_for_groups(api: int, request: Any) -> bool:
    return api == ApiKey.FIND_COORDINATOR and request.key_type == _GROUP_KEY


def _values(value: Any, path: str) -> Iterator[tuple[str, Any]]:
    """Yield each value that is no structure, with the names of the fields that lead to it."""
    if isinstance(value, tuple):
        for each in value:
            yield from _values(each, path)
    elif isinstance(value, Structure):
        for name in value.DEFAULTS:
            yield from _values(getattr(value, name), f"{path}.{name}")
    else:
        yield path, value


def _paths(structure: StructureDefinition, path: str) -> Iterator[str]:
    for field in structure.fields:
        inner = f"{path}.{field.name}"
        yield from [inner] if field.structure is None else _paths(field.structure, inner)
