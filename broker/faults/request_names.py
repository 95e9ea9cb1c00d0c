"""The names of topics and groups in a request of any API.

Runs in targets, for requests that a fault may strike, and in the process of the tests, which asks what an API can
name at all. Names inside of what only clients read, such as the subscriptions of the classic protocol, are not found.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, NamedTuple

from rotunda.broker.protocol.api_keys import ApiKey
from rotunda.broker.protocol.schema.marks import Path, request_paths, values_at

#: What FindCoordinator asks for: groups if the type of the key says so.
_KEYS: Final[tuple[Path, ...]] = (("key",), ("coordinator_keys",))
_GROUP_KEY: Final = 0

#: Returns the name of the topic that has an id, None if there is none.
NameOf = Callable[[bytes], str | None]


class RequestNames(NamedTuple):
    """What a request names."""

    topics: frozenset[str]
    groups: frozenset[str]


def names_in(api: int, request: Any, name_of: NameOf) -> RequestNames:
    """Return what a request names, which is a compiled message."""
    topics = _values(request, request_paths(api, "topic_name"))
    topics |= {name_of(topic_id) for topic_id in _values(request, request_paths(api, "topic_id"))}
    groups = _values(request, request_paths(api, "group_id"))
    if api == ApiKey.FIND_COORDINATOR and request.key_type == _GROUP_KEY:
        groups |= _values(request, _KEYS)
    return RequestNames(frozenset(filter(None, topics)), frozenset(filter(None, groups)))


def can_name(api: ApiKey) -> tuple[bool, bool]:
    """Return whether requests of an API can name topics, and groups."""
    topics = request_paths(api, "topic_name") or request_paths(api, "topic_id")
    return bool(topics), bool(request_paths(api, "group_id")) or api == ApiKey.FIND_COORDINATOR


def _values(request: Any, paths: tuple[Path, ...]) -> set[Any]:
    return {value for path in paths for value in values_at(request, path)}
