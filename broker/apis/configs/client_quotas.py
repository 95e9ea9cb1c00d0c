"""DescribeClientQuotas, served by any handler, and AlterClientQuotas, served by the controller (KIP-546)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Any

from rotunda.broker.apis.cluster.controller_access import (
    ANNOUNCED_AT_ONCE,
    MOST_CHANGES,
    TOO_MANY_CHANGES,
    alter_each,
    announce,
    controller_of,
    portions,
)
from rotunda.broker.apis.context import BrokerContext
from rotunda.broker.errors import ApiError
from rotunda.broker.ipc.request import Request
from rotunda.broker.metadata.configs.quota_entities import (
    ENTITY_TYPES,
    Match,
    QuotaEntity,
    QuotaOp,
    entity_of,
    filter_of,
)
from rotunda.broker.protocol.error_codes import ErrorCode, text_of
from rotunda.broker.protocol.sliced_responses import Lazily
from rotunda.broker.scheduling.long_responses import each_of
from rotunda.broker.scheduling.slices import Work

#: The types and names of an entity.
_Parts = tuple[tuple[str, str | None], ...]


def handle_describe_client_quotas(_request: Request, broker: BrokerContext, body: Any) -> Work:
    """Return the quotas of every entity that matches the filter; all of them for an empty filter."""
    # One component more than there are types suffices to reject longer lists.
    components = body.components[: len(ENTITY_TYPES) + 1]
    matches = [Match(each.entity_type, each.match_type, each.match) for each in components]
    try:
        is_wanted = filter_of(matches, strict=body.strict)
    except ApiError as error:
        return {
            "error_code": error.code,
            "error_message": error.message or text_of(error.code),
            "entries": None,
        }
    found: list[tuple[QuotaEntity, Mapping[str, float]]] = []

    def choose(each: tuple[QuotaEntity, Mapping[str, float]]) -> None:
        if is_wanted(each[0]):
            found.append(each)

    yield from each_of(list(broker.metadata.client_quotas.items()), choose)
    return {"error_code": 0, "error_message": None, "entries": Lazily(found, _entry)}


def handle_alter_client_quotas(_request: Request, broker: BrokerContext, body: Any) -> Work:
    """Return an outcome for each entity; on success its quotas are on disk and known to every process."""
    controller = controller_of(broker)
    asked: list[_Parts] = []
    yield from each_of(body.entries, lambda entry: asked.append(_parts_of(entry)))
    times_asked = Counter(asked)

    def alter(named: tuple[_Parts, Any]) -> None:
        parts, entry = named
        if times_asked[parts] > 1:
            raise ApiError(
                ErrorCode.INVALID_REQUEST, f"Ignoring duplicate entity {dict(parts)}: name it once a request"
            )
        if len(entry.ops) > MOST_CHANGES:
            raise ApiError(ErrorCode.INVALID_REQUEST, TOO_MANY_CHANGES)
        operations = [QuotaOp(each.key, None if each.remove else each.value) for each in entry.ops]
        controller.alter_client_quotas(entity_of(parts), operations, validate_only=body.validate_only)

    entries = []
    wanted = list(zip(asked, body.entries, strict=True))
    for number, portion in enumerate(portions(wanted, lambda named: len(named[1].ops)), 1):
        for (parts, _), failure in zip(portion, alter_each(controller, portion, alter), strict=True):
            entries.append(
                {
                    "error_code": 0 if failure is None else failure.code,
                    "error_message": None if failure is None else failure.message or text_of(failure.code),
                    "entity": _entity_fields(parts),
                }
            )
        if not number % ANNOUNCED_AT_ONCE:
            announce(broker)
        yield None
    announce(broker)
    return {"entries": entries}


def _parts_of(entry: Any) -> _Parts:
    """Return the entity of an entry; one part more than there are types suffices to reject longer lists."""
    return tuple((part.entity_type, part.entity_name) for part in entry.entity[: len(ENTITY_TYPES) + 1])


def _entry(each: tuple[QuotaEntity, Mapping[str, float]]) -> dict[str, Any]:
    entity, quotas = each
    return {
        "entity": _entity_fields(entity),
        "values": [{"key": key, "value": value} for key, value in quotas.items()],
    }


def _entity_fields(entity: tuple[tuple[str, str | None], ...]) -> list[dict[str, Any]]:
    return [{"entity_type": entity_type, "entity_name": name} for entity_type, name in entity]
