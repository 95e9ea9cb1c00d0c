"""DescribeClientQuotas, served by any handler, and AlterClientQuotas, served by the controller (KIP-546)."""

from __future__ import annotations

from collections import Counter
from typing import Any

from broker.client_quotas import Match, QuotaOp, entity_of, matching
from broker.errors import ApiError
from broker.protocol.error_codes import ErrorCode, text_of
from broker.server.handlers.controlling import ALTERED_AT_ONCE, alter_each, controller_of
from broker.server.request_context import RequestContext
from broker.server.slices import Work

#: The types of an entity, and its names.
_Parts = tuple[tuple[str, str | None], ...]


def handle_describe_client_quotas(context: RequestContext, request: Any) -> dict[str, Any]:
    """Return the quotas of every entity that the filter describes; all of them for an empty filter."""
    matches = [Match(each.entity_type, each.match_type, each.match) for each in request.components]
    try:
        found = matching(context.broker.metadata.client_quotas, matches, strict=request.strict)
    except ApiError as error:
        return {
            "throttle_time_ms": 0,
            "error_code": error.code,
            "error_message": error.message or text_of(error.code),
            "entries": None,
        }
    entries = [
        {
            "entity": _entity_fields(entity),
            "values": [{"key": key, "value": value} for key, value in quotas.items()],
        }
        for entity, quotas in found.items()
    ]
    return {"throttle_time_ms": 0, "error_code": 0, "error_message": None, "entries": entries}


def handle_alter_client_quotas(context: RequestContext, request: Any) -> Work:
    """Return an outcome for each entity, whose quotas are on disk and known to every process when it is good."""
    controller = controller_of(context)
    asked = [tuple((part.entity_type, part.entity_name) for part in entry.entity) for entry in request.entries]
    times_asked = Counter(asked)

    def alter(named: tuple[_Parts, Any]) -> None:
        parts, entry = named
        if times_asked[parts] > 1:
            raise ApiError(
                ErrorCode.INVALID_REQUEST, f"Ignoring duplicate entity {dict(parts)}: name it once a request"
            )
        operations = [QuotaOp(each.key, None if each.remove else each.value) for each in entry.ops]
        controller.alter_client_quotas(entity_of(parts), operations, validate_only=request.validate_only)

    entries = []
    wanted = list(zip(asked, request.entries, strict=True))
    for start in range(0, len(wanted), ALTERED_AT_ONCE):
        portion = wanted[start : start + ALTERED_AT_ONCE]
        for (parts, _), failure in zip(portion, alter_each(controller, portion, alter), strict=True):
            entries.append(
                {
                    "error_code": 0 if failure is None else failure.code,
                    "error_message": None if failure is None else failure.message or text_of(failure.code),
                    "entity": _entity_fields(parts),
                }
            )
        yield None
    context.broker.announce_metadata()
    return {"throttle_time_ms": 0, "entries": entries}


def _entity_fields(entity: tuple[tuple[str, str | None], ...]) -> list[dict[str, Any]]:
    return [{"entity_type": entity_type, "entity_name": name} for entity_type, name in entity]
