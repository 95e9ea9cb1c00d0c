"""Changes of settings of a topic, a broker, a group ...: set, append, replace (KIP-339).

Pure functions over plain values; the controller calls them before it writes. A change is validated by its result: all
settings of the resource after the change.
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Mapping
from typing import NamedTuple

from rotunda.broker.config.broker_config import BrokerConfig, find_key
from rotunda.broker.config.group_config import validate_group_configs
from rotunda.broker.config.keys import Key, Kind, render
from rotunda.broker.config.topic_config import TOPIC_CONFIGS, LogConfig, validate_topic_configs
from rotunda.broker.errors import ApiError, ConfigError
from rotunda.broker.metadata.configs.client_metrics_config import validate_client_metrics
from rotunda.broker.metadata.topics.topic_validation import check_topic_name
from rotunda.broker.protocol.error_codes import ErrorCode
from rotunda.broker.server_log.log_levels import LEVELS, ROOT, logger_names
from rotunda.broker.text_table import did_you_mean

#: Resource types of the config APIs.
TOPIC, BROKER, BROKER_LOGGER, CLIENT_METRICS, GROUP = 2, 4, 8, 16, 32

#: Kafka's limit for one value, which a list may reach by appends.
MOST_CHARACTERS = 2**15 - 1

#: The message for any other type.
HAVE_SETTINGS = (
    f"topics ({TOPIC}), brokers ({BROKER}), loggers ({BROKER_LOGGER}), client metrics ({CLIENT_METRICS}) and groups "
    f"({GROUP}) have settings"
)


class Operation(enum.IntEnum):
    """The operations of IncrementalAlterConfigs on one setting."""

    SET = 0
    DELETE = 1
    APPEND = 2
    SUBTRACT = 3


class ConfigChange(NamedTuple):
    """One operation on one setting; ``value`` is None for DELETE only.

    ``operation`` is the number of an `Operation`, or an unknown number.
    """

    name: str
    operation: int
    value: str | None


class Alteration(NamedTuple):
    """The changes to one resource. ``replaces``: unnamed settings return to their defaults."""

    changes: tuple[ConfigChange, ...]
    replaces: bool = False


def altered_topic(
    alteration: Alteration, current: Mapping[str, str], broker: BrokerConfig, name: str
) -> dict[str, str]:
    """Return a topic's own settings after the change. Raises ApiError for an invalid setting or topic name."""
    configs = _apply(
        alteration, current, TOPIC_CONFIGS.get, lambda key: getattr(LogConfig.resolve({}, broker), key.attribute)
    )
    if not name:
        raise ApiError(ErrorCode.INVALID_REQUEST, "Default topic resources are not allowed.")
    check_topic_name(name)
    validate_topic_configs(configs, broker)
    return configs


def altered_broker(
    alteration: Alteration, current: Mapping[str, str], broker: BrokerConfig, name: str
) -> dict[str, str]:
    """Return the dynamic settings of a broker, or without a name of all brokers, after the change.

    ``broker``: the configuration as loaded. Raises ApiError: INVALID_CONFIG if an operation does not fit the setting,
    INVALID_REQUEST (Kafka's choice) if the settings are invalid for the broker.
    """
    configs = _apply(alteration, current, find_key, lambda key: broker.value(key.name))
    try:
        broker.with_dynamic(configs)
    except ConfigError as error:
        raise ApiError(ErrorCode.INVALID_REQUEST, str(error)) from None
    of_one = [] if name else sorted(each for each in configs if (key := find_key(each)) is not None and key.per_broker)
    if of_one:
        raise ApiError(
            ErrorCode.INVALID_REQUEST,
            f"Cannot update these configs at default cluster level, broker id must be specified: [{', '.join(of_one)}]",
        )
    return configs


def shown(configs: Mapping[str, str]) -> dict[str, str]:
    """Return settings of a broker for the log: without secrets."""
    keys = ((name, find_key(name)) for name in configs)
    return {name: "(hidden)" if key is None or key.sensitive else configs[name] for name, key in keys}


def altered_group(
    alteration: Alteration, current: Mapping[str, str], broker: BrokerConfig, name: str
) -> dict[str, str]:
    """Return a group's own settings after the change. Raises ApiError for an invalid setting or an empty name."""
    configs = _apply(alteration, current, _no_key, str)
    if not name:
        raise ApiError(ErrorCode.INVALID_REQUEST, "Default group resources are not allowed.")
    validate_group_configs(configs, broker)
    return configs


def altered_client_metrics(alteration: Alteration, current: Mapping[str, str], name: str) -> dict[str, str]:
    """Return the settings of a subscription after the change. Raises ApiError if they are invalid."""
    configs = _apply(alteration, current, _no_key, str)
    validate_client_metrics(name, configs)
    return configs


def altered_loggers(alteration: Alteration, current: Mapping[str, str]) -> dict[str, str]:
    """Return the levels of loggers after the change (KIP-412). Raises ApiError, as Kafka does: levels are not lists."""
    if alteration.replaces:
        raise ApiError(ErrorCode.INVALID_REQUEST, f"Unknown resource type {BROKER_LOGGER}: only their levels change.")
    levels = dict(current)
    for name, number, level in alteration.changes:
        operation = _operation(number)
        if operation not in {Operation.SET, Operation.DELETE}:
            message = f"{operation.name} operation is not allowed for the BROKER_LOGGER resource"
            raise ApiError(ErrorCode.INVALID_REQUEST, message)
        if name not in logger_names():
            raise ApiError(
                ErrorCode.INVALID_CONFIG, f"Logger {name} does not exist!{did_you_mean(name, logger_names())}"
            )
        if operation is Operation.DELETE:
            if name == ROOT:
                message = f"Removing the log level of the {ROOT} logger is not allowed"
                raise ApiError(ErrorCode.INVALID_REQUEST, message)
            levels.pop(name, None)
        elif level is None or level not in LEVELS:
            message = f"Cannot set the log level of {name} to {level} as it is not a supported log level. "
            raise ApiError(ErrorCode.INVALID_CONFIG, f"{message}Valid log levels are {', '.join(LEVELS)}")
        else:
            levels[name] = level
    return levels


def _apply(
    alteration: Alteration,
    current: Mapping[str, str],
    key_of: Callable[[str], Key | None],
    inherited: Callable[[Key], object],
) -> dict[str, str]:
    configs = {} if alteration.replaces else dict(current)
    for name, number, value in alteration.changes:
        operation = _operation(number)
        if operation is Operation.DELETE:
            configs.pop(name, None)
        elif operation is Operation.SET:
            configs[name] = value or ""
        else:
            key = key_of(name)
            if key is None or key.kind is not Kind.LIST:
                raise ApiError(
                    ErrorCode.INVALID_CONFIG,
                    f"Can't {operation.name} to key {name} because its type is not LIST.",
                )
            # APPEND and SUBTRACT on a list without a value of its own start from the inherited value.
            before = configs[name] if name in configs else render(inherited(key)) or ""  # type: ignore[arg-type]
            configs[name] = ",".join(_LIST_OPERATIONS[operation](_items(before), (value or "").split(",")))
    for name, _, _ in alteration.changes:
        if len(configs.get(name, "")) > MOST_CHARACTERS:
            raise ApiError(
                ErrorCode.INVALID_CONFIG,
                "The configuration value cannot be added because it exceeds the maximum value size of "
                f"{MOST_CHARACTERS} bytes.",
            )
    return configs


def _no_key(_name: str) -> None:
    """Return no list keys: as in Kafka, lists of groups and client metrics can only be set, not appended to."""


def _operation(number: int) -> Operation:
    try:
        return Operation(number)
    except ValueError:
        raise ApiError(ErrorCode.INVALID_REQUEST, f"Unknown operation type {number}") from None


def _append(items: list[str], more: list[str]) -> list[str]:
    return items + [item for item in dict.fromkeys(map(str.strip, more)) if item not in items]


def _subtract(items: list[str], fewer: list[str]) -> list[str]:
    unwanted = set(map(str.strip, fewer))
    return [item for item in items if item not in unwanted]


def _items(text: str) -> list[str]:
    return [item.strip() for item in text.split(",")] if text else []


_LIST_OPERATIONS: Mapping[Operation, Callable[[list[str], list[str]], list[str]]] = {
    Operation.APPEND: _append,
    Operation.SUBTRACT: _subtract,
}


def check_broker_id(name: str, node_id: int) -> None:
    """Raise ApiError(INVALID_REQUEST) unless a resource's name is the id of this broker."""
    try:
        broker_id = int(name)
    except ValueError:
        raise ApiError(ErrorCode.INVALID_REQUEST, f"Node id must be an integer, but it is: {name}") from None
    if broker_id != node_id or name != str(broker_id):
        raise ApiError(ErrorCode.INVALID_REQUEST, f"Unexpected broker id, expected {node_id}, but received {name}")
