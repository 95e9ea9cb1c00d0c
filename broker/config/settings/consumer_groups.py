"""The broker settings of consumer groups of KIP-848's protocol: heartbeat intervals and session timeouts.

Declarations only. `broker_config` joins them with the others into the one BrokerConfig. Names are Kafka's; defaults are
Kafka's but where the text of the key has the reason. `group_config` lets one group have values of its own between the
minimum and the maximum.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from rotunda.broker.config.keys import MAX_INT, Key, Kind, setting


def _ms(name: str, default: int, doc: str, *, least: int = 1, dynamic: bool = False) -> Any:
    return setting(Key(name=name, kind=Kind.INT, default=default, unit="ms", least=least, doc=doc, dynamic=dynamic))


def _with_classic(protocols: tuple[str, ...]) -> str | None:
    return None if "classic" in protocols else "Disabling the 'classic' protocol is not supported."


def _not_empty(names: tuple[str, ...]) -> str | None:
    return None if names else "At least one must be named"


@dataclass(frozen=True, kw_only=True, init=False, repr=False, eq=False)
class ConsumerGroupSettings:
    """Settings of KIP-848's consumer groups. Only ever part of a BrokerConfig."""

    group_coordinator_rebalance_protocols: tuple[str, ...] = setting(
        Key(
            name="group.coordinator.rebalance.protocols",
            kind=Kind.LIST,
            default=("classic", "consumer"),
            choices=("classic", "consumer"),
            validator=_with_classic,
            doc="The protocols that members of groups may speak. Without consumer, KIP-848's requests are refused.",
        )
    )
    group_consumer_assignors: tuple[str, ...] = setting(
        Key(
            name="group.consumer.assignors",
            kind=Kind.LIST,
            default=("uniform", "range"),
            choices=("uniform", "range"),
            validator=_not_empty,
            doc="What may divide partitions among the members of a group. A group whose members do not say what they "
            "want gets the first.",
        )
    )
    group_consumer_migration_policy: str = setting(
        Key(
            name="group.consumer.migration.policy",
            kind=Kind.STRING,
            default="bidirectional",
            choices=("bidirectional", "upgrade", "downgrade", "disabled"),
            doc="Whether a group of classic members becomes a consumer group when a member of that kind joins it "
            "(upgrade), and a classic group again when the last such member has left (downgrade).",
        )
    )
    group_consumer_max_size: int = setting(
        Key(
            name="group.consumer.max.size",
            kind=Kind.INT,
            default=MAX_INT,
            least=1,
            doc="How many members a group may have.",
        )
    )
    group_consumer_heartbeat_interval_ms: int = _ms(
        "group.consumer.heartbeat.interval.ms", 5000, "The interval at which a member is asked to send a heartbeat."
    )
    group_consumer_min_heartbeat_interval_ms: int = _ms(
        "group.consumer.min.heartbeat.interval.ms", 5000, "Least consumer.heartbeat.interval.ms of one group."
    )
    group_consumer_max_heartbeat_interval_ms: int = _ms(
        "group.consumer.max.heartbeat.interval.ms", 15000, "Greatest consumer.heartbeat.interval.ms of one group."
    )
    group_consumer_session_timeout_ms: int = _ms(
        "group.consumer.session.timeout.ms",
        45000,
        "How long a group waits for a member's heartbeat before it goes on without the member.",
    )
    group_consumer_min_session_timeout_ms: int = _ms(
        "group.consumer.min.session.timeout.ms", 45000, "Least consumer.session.timeout.ms of one group."
    )
    group_consumer_max_session_timeout_ms: int = _ms(
        "group.consumer.max.session.timeout.ms", 60000, "Greatest consumer.session.timeout.ms of one group."
    )
    group_consumer_assignment_interval_ms: int = _ms(
        "group.consumer.assignment.interval.ms",
        0,
        "How long the assignment of a group stays before the next is made, however many members come and go meanwhile. "
        "Kafka's default of 1000 makes a joining member wait for it.",
        least=0,
        dynamic=True,
    )
    group_consumer_min_assignment_interval_ms: int = _ms(
        "group.consumer.min.assignment.interval.ms", 0, "Least consumer.assignment.interval.ms of one group.", least=0
    )
    group_consumer_max_assignment_interval_ms: int = _ms(
        "group.consumer.max.assignment.interval.ms",
        15000,
        "Greatest consumer.assignment.interval.ms of one group.",
        least=0,
    )
