"""AlterConfigs and IncrementalAlterConfigs: change settings. Served by the controller."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable
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
from rotunda.broker.apis.configs.config_rejections import rejection_of
from rotunda.broker.apis.context import BrokerContext
from rotunda.broker.errors import ApiError
from rotunda.broker.ipc.request import Request
from rotunda.broker.metadata.configs.config_changes import (
    BROKER,
    BROKER_LOGGER,
    Alteration,
    ConfigChange,
    Operation,
    altered_loggers,
    check_broker_id,
)
from rotunda.broker.metadata.store.metadata_file import LOG_LEVELS
from rotunda.broker.protocol.error_codes import ErrorCode, text_of
from rotunda.broker.scheduling.slices import Work

logger = logging.getLogger(__name__)


def handle_alter_configs(request: Request, broker: BrokerContext, body: Any) -> Work:
    """Return an outcome for each resource, whose settings are replaced by those in the request."""
    return _alter(request, broker, body, _replacement)


def handle_incremental_alter_configs(request: Request, broker: BrokerContext, body: Any) -> Work:
    """Return an outcome for each resource, changing only the settings in the request (KIP-339)."""
    return _alter(request, broker, body, _increment)


def _alter(request: Request, broker: BrokerContext, body: Any, alteration_of: Callable[[Any], Alteration]) -> Work:
    """Change a few resources in each slice, with one change of the metadata."""
    controller = controller_of(broker)
    resources = {(each.resource_type, each.resource_name): each for each in body.resources}
    times_asked = Counter((each.resource_type, each.resource_name) for each in body.resources)

    def alter(resource: Any) -> None:
        resource_type, name = resource.resource_type, resource.resource_name
        if times_asked[resource_type, name] > 1:
            raise ApiError(ErrorCode.INVALID_REQUEST, "Each resource must appear at most once.")
        if rejection := rejection_of(request, broker, resource_type, name):
            raise ApiError(rejection)
        if len(resource.configs) > MOST_CHANGES:
            raise ApiError(ErrorCode.INVALID_REQUEST, TOO_MANY_CHANGES)
        alteration = alteration_of(resource)
        if resource_type == BROKER_LOGGER:
            _alter_loggers(broker, name, alteration, validate_only=body.validate_only)
        else:
            controller.alter_configs(resource_type, name, alteration, validate_only=body.validate_only)

    responses = []
    # A broker alone: its settings limit those of others.
    is_broker = lambda resource: resource.resource_type == BROKER  # noqa: E731
    for number, portion in enumerate(
        portions(resources.values(), lambda resource: len(resource.configs), is_broker), 1
    ):
        for resource, failure in zip(portion, alter_each(controller, portion, alter), strict=True):
            responses.append(
                {
                    "error_code": 0 if failure is None else failure.code,
                    "error_message": None if failure is None else failure.message or text_of(failure.code),
                    "resource_type": resource.resource_type,
                    "resource_name": resource.resource_name,
                }
            )
        if not number % ANNOUNCED_AT_ONCE:
            announce(broker)
        yield None
    announce(broker)
    return {"responses": responses}


def _alter_loggers(broker: BrokerContext, name: str, alteration: Alteration, *, validate_only: bool) -> None:
    """Change the levels of loggers until the next start."""
    metadata = broker.metadata
    check_broker_id(name, metadata.broker_config.node_id)
    levels = altered_loggers(alteration, metadata.log_levels)
    if not validate_only and levels != metadata.log_levels:
        controller_of(broker).replace_until_restart(LOG_LEVELS, levels)
        logger.info("levels of loggers are now %s", levels)


def _replacement(resource: Any) -> Alteration:
    changes = tuple(ConfigChange(config.name, Operation.SET, config.value) for config in resource.configs)
    _check(changes)
    return Alteration(changes, replaces=True)


def _increment(resource: Any) -> Alteration:
    changes = tuple(ConfigChange(config.name, config.config_operation, config.value) for config in resource.configs)
    _check(changes)
    return Alteration(changes)


def _check(changes: tuple[ConfigChange, ...]) -> None:
    """Raise ApiError for errors independent of the resource type; those of its type are validated later."""
    if len({change.name for change in changes}) < len(changes):
        raise ApiError(ErrorCode.INVALID_REQUEST, "Error due to duplicate config keys")
    empty = [change.name for change in changes if change.value is None and change.operation != Operation.DELETE]
    if empty:
        raise ApiError(ErrorCode.INVALID_REQUEST, f"Null value not supported for : {', '.join(empty)}")
