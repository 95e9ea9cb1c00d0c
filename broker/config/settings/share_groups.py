"""The broker settings of share groups (KIP-932): members, locks, deliveries, dead letters and the stored state.

Declarations only. `broker_config` joins them with the others into the one BrokerConfig. Names are Kafka's; defaults are
Kafka's but where another is better for a single broker, which the text of the key explains. `group_config` lets one
group have values of its own between the minimum and the maximum.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from rotunda.broker.config.keys import ONE_REPLICA, Key, Kind, setting


def _int(
    name: str, default: int, bounds: tuple[int, int | None], doc: str, *, unit: str = "", dynamic: bool = False
) -> Any:
    least, most = bounds
    return setting(
        Key(name=name, kind=Kind.INT, default=default, unit=unit, least=least, most=most, doc=doc, dynamic=dynamic)
    )


def _ms(name: str, default: int, doc: str, bounds: tuple[int, int | None] = (1, None), *, dynamic: bool = False) -> Any:
    return _int(name, default, bounds, doc, unit="ms", dynamic=dynamic)


def _not_empty(names: tuple[str, ...]) -> str | None:
    return None if names else "At least one must be named"


@dataclass(frozen=True, kw_only=True, init=False, repr=False, eq=False)
class ShareGroupSettings:
    """Settings of share groups. Only ever part of a BrokerConfig."""

    group_share_heartbeat_interval_ms: int = _ms(
        "group.share.heartbeat.interval.ms", 5000, "The interval at which a member is asked to send a heartbeat."
    )
    group_share_min_heartbeat_interval_ms: int = _ms(
        "group.share.min.heartbeat.interval.ms", 5000, "Least share.heartbeat.interval.ms of one group."
    )
    group_share_max_heartbeat_interval_ms: int = _ms(
        "group.share.max.heartbeat.interval.ms", 15000, "Greatest share.heartbeat.interval.ms of one group."
    )
    group_share_session_timeout_ms: int = _ms(
        "group.share.session.timeout.ms", 45000, "How long a group waits for a member's heartbeat before it removes it."
    )
    group_share_min_session_timeout_ms: int = _ms(
        "group.share.min.session.timeout.ms", 45000, "Least share.session.timeout.ms of one group."
    )
    group_share_max_session_timeout_ms: int = _ms(
        "group.share.max.session.timeout.ms", 60000, "Greatest share.session.timeout.ms of one group."
    )
    group_share_assignment_interval_ms: int = _ms(
        "group.share.assignment.interval.ms",
        0,
        "How long the assignment of a group stays before the next is made, however many members come and go meanwhile. "
        "Kafka's default of 1000 makes a joining member wait for it.",
        (0, None),
        dynamic=True,
    )
    group_share_min_assignment_interval_ms: int = _ms(
        "group.share.min.assignment.interval.ms", 0, "Least share.assignment.interval.ms of one group.", (0, None)
    )
    group_share_max_assignment_interval_ms: int = _ms(
        "group.share.max.assignment.interval.ms",
        15000,
        "Greatest share.assignment.interval.ms of one group.",
        (0, None),
    )
    group_share_record_lock_duration_ms: int = _ms(
        "group.share.record.lock.duration.ms",
        30000,
        "How long a record is locked for the consumer that fetched it; then others get it.",
        (1000, 3_600_000),
    )
    group_share_min_record_lock_duration_ms: int = _ms(
        "group.share.min.record.lock.duration.ms",
        15000,
        "Least share.record.lock.duration.ms of one group.",
        (1000, 30000),
    )
    group_share_max_record_lock_duration_ms: int = _ms(
        "group.share.max.record.lock.duration.ms",
        60000,
        "Greatest share.record.lock.duration.ms of one group.",
        (30000, 3_600_000),
    )
    group_share_delivery_count_limit: int = _int(
        "group.share.delivery.count.limit",
        5,
        (2, 10),
        "Most deliveries of a record. After the last one without success it is archived.",
    )
    group_share_min_delivery_count_limit: int = _int(
        "group.share.min.delivery.count.limit", 2, (2, 5), "Least share.delivery.count.limit of one group."
    )
    group_share_max_delivery_count_limit: int = _int(
        "group.share.max.delivery.count.limit", 10, (5, 25), "Greatest share.delivery.count.limit of one group."
    )
    group_share_partition_max_record_locks: int = _int(
        "group.share.partition.max.record.locks",
        2000,
        (100, 10000),
        "Most records of a partition in flight in one group.",
    )
    group_share_min_partition_max_record_locks: int = _int(
        "group.share.min.partition.max.record.locks",
        100,
        (100, 2000),
        "Least share.partition.max.record.locks of one group.",
    )
    group_share_max_partition_max_record_locks: int = _int(
        "group.share.max.partition.max.record.locks",
        4000,
        (2000, 10000),
        "Greatest share.partition.max.record.locks of one group.",
    )
    group_share_max_size: int = _int("group.share.max.size", 200, (1, 1000), "Most members of a group.")
    group_share_max_share_sessions: int = _int(
        "group.share.max.share.sessions", 2000, (1, None), "Most share sessions of the broker."
    )
    group_share_assignors: tuple[str, ...] = setting(
        Key(
            name="group.share.assignors",
            kind=Kind.LIST,
            default=("simple",),
            choices=("simple",),
            validator=_not_empty,
            doc="The assignor of share groups, which divides partitions among the members.",
        )
    )
    group_share_initialize_retry_interval_ms: int = _ms(
        "group.share.initialize.retry.interval.ms",
        30000,
        "How long the state of a partition may be under initialization before that is tried again.",
    )
    errors_deadletterqueue_topic_name_prefix: str = setting(
        Key(
            name="errors.deadletterqueue.topic.name.prefix",
            kind=Kind.STRING,
            default="dlq.",
            doc="The required beginning of the names of dead letter topics; empty: any.",
        )
    )
    errors_deadletterqueue_auto_create_topics_enable: bool = setting(
        Key(
            name="errors.deadletterqueue.auto.create.topics.enable",
            kind=Kind.BOOLEAN,
            default=False,
            doc="Whether a dead letter topic is created when the first record is written to it.",
        )
    )


@dataclass(frozen=True, kw_only=True, init=False, repr=False, eq=False)
class ShareCoordinatorSettings:
    """Settings of `__share_group_state`. Only ever part of a BrokerConfig."""

    share_coordinator_state_topic_num_partitions: int = setting(
        Key(
            name="share.coordinator.state.topic.num.partitions",
            kind=Kind.INT,
            default=1,
            default_text="as many as num.io.threads",
            least=1,
            doc="Partitions of __share_group_state, which is made when the first share group is; it keeps the number "
            "that it was made with. Fewer than Kafka's 50: acknowledgements of many groups share a write.",
        )
    )
    share_coordinator_state_topic_replication_factor: int = setting(
        Key(
            name="share.coordinator.state.topic.replication.factor",
            kind=Kind.SHORT,
            default=1,
            least=1,
            most=1,
            most_because=ONE_REPLICA,
            doc="Replicas of __share_group_state; one broker holds one.",
        )
    )
    share_coordinator_state_topic_min_isr: int = setting(
        Key(
            name="share.coordinator.state.topic.min.isr",
            kind=Kind.SHORT,
            default=1,
            least=1,
            most=1,
            most_because=ONE_REPLICA,
            doc="How many replicas must hold a record of __share_group_state; there is one.",
        )
    )
    share_coordinator_state_topic_segment_bytes: int = _int(
        "share.coordinator.state.topic.segment.bytes",
        100 * 1024 * 1024,
        (1024 * 1024, None),
        "Size of a segment of __share_group_state.",
        unit="bytes",
    )
    share_coordinator_snapshot_update_records_per_snapshot: int = _int(
        "share.coordinator.snapshot.update.records.per.snapshot",
        500,
        (0, 500),
        "Most updates of a partition's state before it is written as a whole.",
    )
    share_coordinator_state_topic_prune_interval_ms: int = _ms(
        "share.coordinator.state.topic.prune.interval.ms",
        300_000,
        "How often records of __share_group_state that a snapshot replaces are deleted.",
    )
    share_coordinator_cold_partition_snapshot_interval_ms: int = _ms(
        "share.coordinator.cold.partition.snapshot.interval.ms",
        300_000,
        "How long a partition's state may be without a write before a snapshot replaces its older records.",
    )


#: Settings of groups with a broker setting for all groups and one for each of its bounds, by kind of group.
_BOUNDED = {
    "consumer": ("heartbeat.interval.ms", "session.timeout.ms", "assignment.interval.ms"),
    "share": (
        "heartbeat.interval.ms",
        "session.timeout.ms",
        "assignment.interval.ms",
        "record.lock.duration.ms",
        "delivery.count.limit",
        "partition.max.record.locks",
    ),
}


def bounded_settings() -> Iterable[tuple[str, str, str]]:
    """Yield the names of each group setting of the broker with bounds: its own, the least and the greatest value."""
    for kind, settings in _BOUNDED.items():
        for what in settings:
            yield f"group.{kind}.{what}", f"group.{kind}.min.{what}", f"group.{kind}.max.{what}"
