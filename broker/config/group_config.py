"""The settings of one group: their names, the broker setting each defaults to, their valid values.

As Kafka's group configs (KIP-848): set with IncrementalAlterConfigs on a GROUP resource, whether the group exists yet
or not. Only consumer groups are served, so only their settings are known. Pure; runs in handlers and the controller.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import NamedTuple

from rotunda.broker.config.broker_config import BrokerConfig
from rotunda.broker.config.keys import TRIMMED, Kind, Value, did_you_mean, parse_whole_number
from rotunda.broker.errors import ApiError
from rotunda.broker.protocol.error_codes import ErrorCode


class GroupKey(NamedTuple):
    """A group setting, and the broker settings of its value for all groups and of its least and greatest value."""

    name: str
    broker_name: str
    least_name: str
    greatest_name: str
    doc: str
    kind: Kind = Kind.INT

    def parse(self, text: str) -> int:
        """Return the value that ``text`` writes. Raises ValueError, worded for the user."""
        return parse_whole_number(text.strip(TRIMMED), self.kind)


def _key(name: str, what: str, doc: str) -> GroupKey:
    return GroupKey(name, f"group.consumer.{what}", f"group.consumer.min.{what}", f"group.consumer.max.{what}", doc)


GROUP_CONFIGS: Mapping[str, GroupKey] = MappingProxyType(
    {
        key.name: key
        for key in (
            _key(
                "consumer.heartbeat.interval.ms",
                "heartbeat.interval.ms",
                "The interval at which a member of the group is asked to send a heartbeat.",
            ),
            _key(
                "consumer.session.timeout.ms",
                "session.timeout.ms",
                "How long the group waits for a member's heartbeat before it goes on without the member.",
            ),
            _key(
                "consumer.assignment.interval.ms",
                "assignment.interval.ms",
                "How long the group's assignment stays before the next is made.",
            ),
        )
    }
)


def group_value(key: GroupKey, configs: Mapping[str, str], broker: BrokerConfig) -> Value:
    """Return the effective value for a group with the settings ``configs``."""
    own = configs.get(key.name)
    return broker.value(key.broker_name) if own is None else key.parse(own)


def validate_group_configs(configs: Mapping[str, str], broker: BrokerConfig) -> None:
    """Raise ApiError INVALID_CONFIG, which names the valid settings, if a group may not have these settings."""
    for name in configs:
        if name not in GROUP_CONFIGS:
            raise _invalid(f"Unknown group config name: {name}{did_you_mean(name, GROUP_CONFIGS)}")
    values = {key: _number(key, configs, broker) for key in GROUP_CONFIGS.values()}
    for key, value in values.items():
        if key.name not in configs:
            continue
        least, greatest = (broker.value(name) for name in (key.least_name, key.greatest_name))
        if isinstance(least, int) and value < least:
            raise _invalid(f"{key.name} must be greater than or equal to {key.least_name} ({least}), not {value}")
        if isinstance(greatest, int) and value > greatest:
            raise _invalid(f"{key.name} must be less than or equal to {key.greatest_name} ({greatest}), not {value}")
    heartbeat, session, _ = values.values()
    if heartbeat >= session:
        raise _invalid(
            f"consumer.heartbeat.interval.ms ({heartbeat}) must be less than consumer.session.timeout.ms ({session})"
        )


def _number(key: GroupKey, configs: Mapping[str, str], broker: BrokerConfig) -> int:
    try:
        value = group_value(key, configs, broker)
    except ValueError as error:
        raise _invalid(f"Invalid value {configs[key.name]} for configuration {key.name}: {error}") from None
    if not isinstance(value, int):
        raise TypeError(f"{key.broker_name} is not a whole number: {value!r}")
    return value


def _invalid(message: str) -> ApiError:
    return ApiError(ErrorCode.INVALID_CONFIG, message)
