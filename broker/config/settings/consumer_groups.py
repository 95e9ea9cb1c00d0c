"""The broker settings of consumer groups of KIP-848's protocol: heartbeat intervals and session timeouts.

Declarations only. `broker_config` joins them with the others into the one BrokerConfig. Names are Kafka's; defaults are
Kafka's but where the text of the key has the reason. `group_config` lets one group have values of its own between the
minimum and the maximum.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from rotunda.broker.config.keys import MAX_INT, Kind, setting


def _ms(default: int, doc: str, *, least: int = 1, dynamic: bool = False) -> Any:
    return setting(Kind.INT, default, least=least, dynamic=dynamic, doc=doc)


def _with_classic(protocols: tuple[str, ...]) -> str | None:
    return None if "classic" in protocols else "Disabling the 'classic' protocol is not supported."


def _not_empty(names: tuple[str, ...]) -> str | None:
    return None if names else "at least one assignor is required"


@dataclass(frozen=True, kw_only=True, init=False, repr=False, eq=False)
class ConsumerGroupSettings:
    """Settings of KIP-848's consumer groups. A part of BrokerConfig."""

    group_coordinator_rebalance_protocols: tuple[str, ...] = setting(
        Kind.LIST,
        ("classic", "consumer"),
        choices=("classic", "consumer", "share", "streams"),
        validator=_with_classic,
        doc="Enabled protocols. Without consumer, KIP-848's requests fail. No effect: share, streams.",
    )
    group_consumer_assignors: tuple[str, ...] = setting(
        Kind.LIST,
        ("uniform", "range"),
        choices=("uniform", "range"),
        validator=_not_empty,
        doc="Server-side assignors. The first is the default of groups whose members name none.",
    )
    group_consumer_migration_policy: str = setting(
        Kind.STRING,
        "bidirectional",
        choices=("bidirectional", "upgrade", "downgrade", "disabled"),
        doc="Whether a classic group is converted to a consumer group when a consumer member joins it (upgrade), "
        "and back when the last one leaves (downgrade).",
    )
    group_consumer_max_size: int = setting(
        Kind.INT, MAX_INT, least=1, doc="Maximum number of members of a consumer group."
    )
    group_consumer_heartbeat_interval_ms: int = _ms(5000, "The heartbeat interval of members.")
    group_consumer_min_heartbeat_interval_ms: int = _ms(5000, "Minimum consumer.heartbeat.interval.ms of a group.")
    group_consumer_max_heartbeat_interval_ms: int = _ms(15000, "Maximum consumer.heartbeat.interval.ms of a group.")
    group_consumer_session_timeout_ms: int = _ms(
        45000, "Remove members without a heartbeat for this long from their group."
    )
    group_consumer_min_session_timeout_ms: int = _ms(45000, "Minimum consumer.session.timeout.ms of a group.")
    group_consumer_max_session_timeout_ms: int = _ms(60000, "Maximum consumer.session.timeout.ms of a group.")
    group_consumer_assignment_interval_ms: int = _ms(
        0,
        "Minimum time between two assignments of a group, however many members join and leave. With Kafka's default "
        "of 1000 a joining member waits for it.",
        least=0,
        dynamic=True,
    )
    group_consumer_min_assignment_interval_ms: int = _ms(
        0, "Minimum consumer.assignment.interval.ms of a group.", least=0
    )
    group_consumer_max_assignment_interval_ms: int = _ms(
        15000, "Maximum consumer.assignment.interval.ms of a group.", least=0
    )
