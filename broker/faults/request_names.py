"""The names of topics and groups in a request of any API.

Runs in targets, for requests that a fault may match, and in the process of the tests, to find out whether an API can
contain names at all. Names inside fields that only clients parse, such as the subscriptions of the classic protocol,
are not found.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, NamedTuple

from rotunda.broker.protocol.api_keys import ApiKey
from rotunda.broker.protocol.schema.marks import Path, request_paths, values_at

#: The keys of FindCoordinator: groups if the key type is `_GROUP_KEY`.
_KEYS: Final[tuple[Path, ...]] = (("key",), ("coordinator_keys",))
_GROUP_KEY: Final = 0

#: Returns the name of the topic that has an id, None if there is none.
NameOf = Callable[[bytes], str | None]


class RequestNames(NamedTuple):
    """The topics and groups in a request."""

    topics: frozenset[str]
    groups: frozenset[str]


def names_in(api: int, request: Any, name_of: NameOf) -> RequestNames:
    """Return the names in a request, which is a compiled message."""
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
