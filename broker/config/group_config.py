"""The settings of one group: their names, the broker setting each defaults to, their valid values.

As Kafka's group configs (KIP-848, KIP-932): set with IncrementalAlterConfigs on a GROUP resource, whether the group
exists yet or not. Those of consumer groups and of share groups are served. Pure; runs in handlers and the controller.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final

from rotunda.broker.config.broker_config import BrokerConfig
from rotunda.broker.config.keys import Key, Kind, Value
from rotunda.broker.config.offset_reset import offset_reset_complaint
from rotunda.broker.errors import ApiError
from rotunda.broker.protocol.error_codes import ErrorCode
from rotunda.broker.text_table import did_you_mean


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupKey(Key):
    """A group setting. A number has a broker setting for all groups, its `broker_name`, and two with its bounds."""

    broker_name: str = ""
    least_name: str = ""
    greatest_name: str = ""


def _number(kind: str, noun: str, doc: str) -> GroupKey:
    return GroupKey(
        name=f"{kind}.{noun}",
        kind=Kind.INT,
        default=None,
        doc=doc,
        broker_name=f"group.{kind}.{noun}",
        least_name=f"group.{kind}.min.{noun}",
        greatest_name=f"group.{kind}.max.{noun}",
    )


def _dead_letter_topic_complaint(name: str) -> str | None:
    return "The dead letter topic must not begin with '__'" if name.startswith("__") else None


_INTERVALS: Final = {
    "heartbeat.interval.ms": "The heartbeat interval of members.",
    "session.timeout.ms": "Remove members without a heartbeat for this long from the group.",
    "assignment.interval.ms": "Minimum time between two assignments.",
}

_SHARE_KEYS: Final = (
    _number("share", "record.lock.duration.ms", "How long a record is locked for the consumer that fetched it."),
    _number("share", "delivery.count.limit", "Maximum deliveries of a record. After the last one it is archived."),
    _number("share", "partition.max.record.locks", "Maximum records of a partition in flight."),
    GroupKey(
        name="share.auto.offset.reset",
        kind=Kind.STRING,
        default="latest",
        validator=offset_reset_complaint,
        doc="Where the group starts in a partition that is new to it: latest, earliest, or "
        "by_duration:PnDTnHnMn.nS, at the first record not older than that.",
    ),
    GroupKey(
        name="share.isolation.level",
        kind=Kind.STRING,
        default="read_uncommitted",
        choices=("read_committed", "read_uncommitted"),
        doc="Whether the group reads records of transactions that are open or aborted.",
    ),
    GroupKey(
        name="share.renew.acknowledge.enable",
        kind=Kind.BOOLEAN,
        default=True,
        doc="Whether consumers may renew the lock of a record.",
    ),
    GroupKey(
        name="errors.deadletterqueue.topic.name",
        kind=Kind.STRING,
        default="",
        validator=_dead_letter_topic_complaint,
        doc="The topic of records that were rejected or delivered too often. Needs share.version 2.",
    ),
    GroupKey(
        name="errors.deadletterqueue.copy.record.enable",
        kind=Kind.BOOLEAN,
        default=False,
        doc="Whether dead letters have the key and value of the original record.",
    ),
)

GROUP_CONFIGS: Mapping[str, GroupKey] = MappingProxyType(
    {
        key.name: key
        for key in (
            *(_number(kind, noun, doc) for kind in ("consumer", "share") for noun, doc in _INTERVALS.items()),
            *_SHARE_KEYS,
        )
    }
)


def group_value(key: GroupKey, configs: Mapping[str, str], broker: BrokerConfig) -> Value:
    """Return the effective value for a group with the settings `configs`: within the broker's present bounds."""
    own = configs.get(key.name)
    if not key.broker_name:
        return key.default if own is None else key.parse(own)
    value = broker.value(key.broker_name) if own is None else key.parse(own)
    least, greatest = _bounds(key, broker)
    return min(max(_whole(value), least), greatest)


def group_number(key: GroupKey, configs: Mapping[str, str], broker: BrokerConfig) -> int:
    """Return the effective value of a setting that is a number."""
    return _whole(group_value(key, configs, broker))


def out_of_bounds(configs: Mapping[str, str], broker: BrokerConfig) -> Iterator[str]:
    """Yield a text for each setting of a group that the broker's present bounds override.

    The bounds were others when it was set.
    """
    for name, text in configs.items():
        key = GROUP_CONFIGS.get(name)
        if key is None or not key.broker_name:
            continue
        value, used = _whole(key.parse(text)), group_number(key, configs, broker)
        if value < used:
            yield f"{name}={value} is below {key.least_name} ({used})"
        elif value > used:
            yield f"{name}={value} is above {key.greatest_name} ({used})"


def validate_group_configs(configs: Mapping[str, str], broker: BrokerConfig) -> None:
    """Raise ApiError INVALID_CONFIG, which names the valid settings, if a group may not have these settings."""
    for name, text in configs.items():
        key = GROUP_CONFIGS.get(name)
        if key is None:
            raise _invalid(f"Unknown group config name: {name}{did_you_mean(name, GROUP_CONFIGS)}")
        try:
            value = key.parse(text)
        except ValueError as error:
            raise _invalid(f"Invalid value {text} for configuration {name}: {error}") from None
        if key.broker_name:
            _check_bounds(key, _whole(value), broker)
    for kind in ("consumer", "share"):
        heartbeat, session = (
            GROUP_CONFIGS[f"{kind}.{noun}"] for noun in ("heartbeat.interval.ms", "session.timeout.ms")
        )
        interval, timeout = (group_number(key, configs, broker) for key in (heartbeat, session))
        if interval >= timeout:
            raise _invalid(f"{heartbeat.name} ({interval}) must be less than {session.name} ({timeout})")


def _check_bounds(key: GroupKey, value: int, broker: BrokerConfig) -> None:
    least, greatest = _bounds(key, broker)
    if value < least:
        raise _invalid(f"{key.name} must be greater than or equal to {key.least_name} ({least}), not {value}")
    if value > greatest:
        raise _invalid(f"{key.name} must be less than or equal to {key.greatest_name} ({greatest}), not {value}")


def _bounds(key: GroupKey, broker: BrokerConfig) -> tuple[int, int]:
    return _whole(broker.value(key.least_name)), _whole(broker.value(key.greatest_name))


def _whole(value: Value) -> int:
    if not isinstance(value, int):
        raise TypeError(f"not a whole number: {value!r}")
    return value


def _invalid(message: str) -> ApiError:
    return ApiError(ErrorCode.INVALID_CONFIG, message)
