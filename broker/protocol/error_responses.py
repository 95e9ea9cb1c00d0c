"""Error responses of any API: every element of a request gets the error, in the format of its version.

Pure. As in Kafka the error is in the outermost structure that has a field for one. Where that is the response itself
its other fields have their defaults.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from functools import partial
from typing import Any, Final

from rotunda.broker.protocol.api_keys import ApiKey
from rotunda.broker.protocol.schema.definitions import Field, Structure, StructureDefinition, response
from rotunda.broker.protocol.schema.marks import TOPIC_NAMES, error_field
from rotunda.broker.protocol.sliced_responses import Lazily

_MESSAGE: Final = "error_message"

#: The arrays of requests for the arrays of responses with other names: the first that exists.
_COUNTERPARTS: Final[Mapping[str, tuple[str, ...]]] = {
    "responses": ("topics", "topic_names", "resources", "topic_data"),
    "partition_responses": ("partition_data",),
    "results": ("groups_names", "topics", "creations", "users", "resources"),
    "groups": ("groups", "group_ids"),
    "coordinators": ("coordinator_keys",),
    "transaction_states": ("transactional_ids",),
    "filter_results": ("filters",),
    "partitions": ("partitions", "partition_indexes"),
    "results_by_topic_v3_and_below": ("v3_and_below_topics",),
    "results_by_partition": ("partitions",),
    "replica_election_results": ("topic_partitions",),
    "partition_result": ("partitions",),
}

#: The elements of responses that no array of the request has as they are.
_ELEMENTS: Final[Mapping[tuple[int, str], Callable[[Any], Collection[Any]]]] = {
    (ApiKey.ALTER_REPLICA_LOG_DIRS, "results"): lambda asked: [topic for each in asked.dirs for topic in each.topics],
    (ApiKey.DESCRIBE_LOG_DIRS, "results"): lambda _asked: (),
    (ApiKey.ALTER_USER_SCRAM_CREDENTIALS, "results"): lambda asked: sorted(
        {each.name for each in (*asked.deletions, *asked.upsertions)}
    ),
}

#: APIs where structures with an error also have the request's names, and elements.
_WITH_ELEMENTS: Final = frozenset(
    {
        ApiKey.ELECT_LEADERS,
        ApiKey.ALTER_PARTITION_REASSIGNMENTS,
        ApiKey.LIST_PARTITION_REASSIGNMENTS,
        ApiKey.ALTER_CLIENT_QUOTAS,
        ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS,
    }
)


def error_response(api_key: int, version: int, request: Any, error: int, message: str | None) -> dict[str, Any]:
    """Return the response that rejects a request, a compiled message, with an error."""
    whole = whole_error_response(api_key, version, error, message)
    if whole is not None and api_key not in _WITH_ELEMENTS:
        return whole
    return _ErrorResponse(api_key, version, error, message).values_of(response(api_key).structure, request)


def whole_error_response(api_key: int, version: int, error: int, message: str | None) -> dict[str, Any] | None:
    """Return the response that rejects a request that was not read; None where errors are those of its elements."""
    structure = response(api_key).structure
    place = error_field(structure, version)
    if place is None:
        return None
    return {place.name: error, **{each.name: message for each in structure.fields if each.name == _MESSAGE}}


class _ErrorResponse:
    """The structures of one response."""

    def __init__(self, api_key: int, version: int, error: int, message: str | None) -> None:
        self._api_key = api_key
        self._version = version
        self._error = error
        self._message = message

    def values_of(self, structure: StructureDefinition, asked: Any) -> dict[str, Any]:
        """Return the values of a structure about one of the request, or about a plain value in it."""
        fields = [each for each in structure.fields if self._version in each.versions]
        place = error_field(structure, self._version)
        values: dict[str, Any] = {}
        for field in fields:
            if field.structure is not None:
                if field.is_array:
                    has_elements = place is None or self._api_key in _WITH_ELEMENTS
                    elements = self._elements(field.name, asked) if has_elements else ()
                    values[field.name] = Lazily(elements, partial(self.values_of, field.structure))
            elif field.name == _MESSAGE:
                values[field.name] = self._message
            elif not field.name.endswith("error_code"):
                values |= self._copied(field, asked)
        if place is not None:
            values[place.name] = self._error
        if not isinstance(asked, Structure):
            is_name = isinstance(asked, str)
            key = next(each for each in fields if each is not place and (each.kind == "string") == is_name)
            values[key.name] = asked
        return values

    def _elements(self, name: str, asked: Any) -> Collection[Any]:
        """Return the elements of the request that an array of the response is about."""
        if (find := _ELEMENTS.get((self._api_key, name))) is not None:
            return find(asked)
        candidates = (getattr(asked, each, None) for each in _COUNTERPARTS.get(name, (name,)))
        return next((found for found in candidates if found), ())

    def _copied(self, field: Field, asked: Any) -> dict[str, Any]:
        """Return the value of a field that the request has too."""
        names = TOPIC_NAMES if field.names == "topic_name" else (field.name,)
        name = next((each for each in names if hasattr(asked, each)), None)
        found = None if name is None else getattr(asked, name)
        return {} if found is None and (name is None or self._version not in field.nullable) else {field.name: found}
