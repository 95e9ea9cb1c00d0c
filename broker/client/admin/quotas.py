"""The command line's quota operations, as requests on a client."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

from rotunda.broker.client.network.blocking_client import check
from rotunda.broker.protocol.api_keys import ApiKey

if TYPE_CHECKING:
    from rotunda.broker.client.network.blocking_client import BlockingClient

_VERSION = 1
_EXACT, _DEFAULT = 0, 1

#: By entity type, a name, or None for the default: entities without a quota of their own.
Entity = Mapping[str, str | None]


class EntityQuotas(NamedTuple):
    """The quotas of one entity."""

    entity: Entity
    quotas: Mapping[str, float]


def describe(client: BlockingClient, entity: Entity | None = None) -> list[EntityQuotas]:
    """Return the quotas of exactly this entity, or of all entities. Raises ApiError."""
    components = [
        {"entity_type": kind, "match_type": _DEFAULT if name is None else _EXACT, "match": name}
        for kind, name in (entity or {}).items()
    ]
    fields = {"components": components, "strict": entity is not None}
    response = client.request(ApiKey.DESCRIBE_CLIENT_QUOTAS, fields, _VERSION)
    check(response)
    return [
        EntityQuotas(
            {part.entity_type: part.entity_name for part in entry.entity},
            {value.key: value.value for value in entry.values},
        )
        for entry in response.entries or ()
    ]


def alter(client: BlockingClient, entity: Entity, changes: Sequence[tuple[str, float | None]]) -> None:
    """Set quotas of an entity, and remove those with None; all or nothing. Raises ApiError."""
    entry = {
        "entity": [{"entity_type": kind, "entity_name": name} for kind, name in entity.items()],
        "ops": [{"key": key, "value": value or 0.0, "remove": value is None} for key, value in changes],
    }
    response = client.request(ApiKey.ALTER_CLIENT_QUOTAS, {"entries": [entry], "validate_only": False}, _VERSION)
    for outcome in response.entries:
        check(outcome)
