"""AlterConfigs and IncrementalAlterConfigs: change settings. Served by the controller."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any

from broker.config_alteration import Alteration, ConfigChange, Operation
from broker.errors import ApiError
from broker.protocol.error_codes import ErrorCode, text_of
from broker.server.handlers.controlling import controller_of
from broker.server.request_context import RequestContext
from broker.server.slices import Work


def handle_alter_configs(context: RequestContext, request: Any) -> Work:
    """Return an outcome for each resource, whose settings become those named and no others."""
    return _alter(context, request, _replacement)


def handle_incremental_alter_configs(context: RequestContext, request: Any) -> Work:
    """Return an outcome for each resource, of whose settings only those named change (KIP-339)."""
    return _alter(context, request, _increment)


def _alter(context: RequestContext, request: Any, alteration_of: Callable[[Any], Alteration]) -> Work:
    """Change one resource in each slice; each is one change of the metadata."""
    controller = controller_of(context)
    resources = {(each.resource_type, each.resource_name): each for each in request.resources}
    times_asked = Counter((each.resource_type, each.resource_name) for each in request.resources)
    responses = []
    for (resource_type, name), resource in resources.items():
        failure = None
        try:
            if times_asked[resource_type, name] > 1:
                raise ApiError(ErrorCode.INVALID_REQUEST, "Each resource must appear at most once.")
            alteration = alteration_of(resource)
            controller.alter_configs(resource_type, name, alteration, validate_only=request.validate_only)
        except ApiError as error:
            failure = error
        responses.append(
            {
                "error_code": 0 if failure is None else failure.code,
                "error_message": None if failure is None else failure.message or text_of(failure.code),
                "resource_type": resource_type,
                "resource_name": name,
            }
        )
        yield None
    context.broker.announce_metadata()
    return {"throttle_time_ms": 0, "responses": responses}


def _replacement(resource: Any) -> Alteration:
    changes = tuple(ConfigChange(config.name, Operation.SET, config.value) for config in resource.configs)
    _check(changes)
    return Alteration(changes, replaces=True)


def _increment(resource: Any) -> Alteration:
    changes = tuple(ConfigChange(config.name, config.config_operation, config.value) for config in resource.configs)
    _check(changes)
    return Alteration(changes)


def _check(changes: tuple[ConfigChange, ...]) -> None:
    """Raise ApiError for what is wrong whatever the resource is; what its kind makes of the rest comes after that."""
    if len({change.name for change in changes}) < len(changes):
        raise ApiError(ErrorCode.INVALID_REQUEST, "Error due to duplicate config keys")
    empty = [change.name for change in changes if change.value is None and change.operation != Operation.DELETE]
    if empty:
        raise ApiError(ErrorCode.INVALID_REQUEST, f"Null value not supported for : {', '.join(empty)}")
