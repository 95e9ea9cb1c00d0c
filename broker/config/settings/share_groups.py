"""The broker settings of share groups (KIP-932): members, locks, deliveries, dead letters and the stored state.

Declarations only. `broker_config` joins them with the others into the one BrokerConfig. Names are Kafka's; defaults are
Kafka's but where another is better for a single broker, which the text of the key explains. `group_config` lets one
group have values of its own between the minimum and the maximum.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from rotunda.broker.config.keys import ONE_REPLICA, Kind, setting


def _int(default: int, doc: str, bounds: tuple[int, int | None] = (1, None), *, dynamic: bool = False) -> Any:
    least, most = bounds
    return setting(Kind.INT, default, least=least, most=most, dynamic=dynamic, doc=doc)


def _not_empty(names: tuple[str, ...]) -> str | None:
    return None if names else "at least one assignor is required"


@dataclass(frozen=True, kw_only=True, init=False, repr=False, eq=False)
class ShareGroupSettings:
    """Settings of share groups. A part of BrokerConfig."""

    group_share_heartbeat_interval_ms: int = _int(5000, "The heartbeat interval of members.")
    group_share_min_heartbeat_interval_ms: int = _int(5000, "Minimum share.heartbeat.interval.ms.")
    group_share_max_heartbeat_interval_ms: int = _int(15000, "Maximum share.heartbeat.interval.ms.")
    group_share_session_timeout_ms: int = _int(
        45000, "Remove members without a heartbeat for this long from their group."
    )
    group_share_min_session_timeout_ms: int = _int(45000, "Minimum share.session.timeout.ms.")
    group_share_max_session_timeout_ms: int = _int(60000, "Maximum share.session.timeout.ms.")
    group_share_assignment_interval_ms: int = _int(
        0,
        "Minimum time between two assignments of a group, however many members join and leave. With Kafka's default "
        "of 1000 a joining member waits for it.",
        (0, None),
        dynamic=True,
    )
    group_share_min_assignment_interval_ms: int = _int(0, "Minimum share.assignment.interval.ms.", (0, None))
    group_share_max_assignment_interval_ms: int = _int(15000, "Maximum share.assignment.interval.ms.", (0, None))
    group_share_record_lock_duration_ms: int = _int(
        30000,
        "How long a record is locked for the consumer that fetched it. Then it is delivered to others.",
        (1000, 3_600_000),
    )
    group_share_min_record_lock_duration_ms: int = _int(15000, "Minimum share.record.lock.duration.ms.", (1000, 30000))
    group_share_max_record_lock_duration_ms: int = _int(
        60000, "Maximum share.record.lock.duration.ms.", (30000, 3_600_000)
    )
    group_share_delivery_count_limit: int = _int(
        5, "Maximum deliveries of a record. After the last unsuccessful one it is archived.", (2, 10)
    )
    group_share_min_delivery_count_limit: int = _int(2, "Minimum share.delivery.count.limit.", (2, 5))
    group_share_max_delivery_count_limit: int = _int(10, "Maximum share.delivery.count.limit.", (5, 25))
    group_share_partition_max_record_locks: int = _int(
        2000, "Maximum records of a partition in flight in a group.", (100, 10000)
    )
    group_share_min_partition_max_record_locks: int = _int(
        100, "Minimum share.partition.max.record.locks.", (100, 2000)
    )
    group_share_max_partition_max_record_locks: int = _int(
        4000, "Maximum share.partition.max.record.locks.", (2000, 10000)
    )
    group_share_max_size: int = _int(200, "Maximum number of members of a share group.", (1, 1000))
    group_share_max_share_sessions: int = _int(2000, "Maximum number of share sessions of the broker.")
    group_share_assignors: tuple[str, ...] = setting(
        Kind.LIST, ("simple",), choices=("simple",), validator=_not_empty, doc="Assignors of share groups."
    )
    group_share_initialize_retry_interval_ms: int = _int(30000, "Interval of retries of a partition's initialization.")
    errors_deadletterqueue_topic_name_prefix: str = setting(
        Kind.STRING, "dlq.", dynamic=True, doc="Required prefix of names of dead letter topics; empty: none."
    )
    errors_deadletterqueue_auto_create_topics_enable: bool = setting(
        Kind.BOOLEAN, False, dynamic=True, doc="Create a dead letter topic with its first record."
    )


@dataclass(frozen=True, kw_only=True, init=False, repr=False, eq=False)
class ShareCoordinatorSettings:
    """Settings of `__share_group_state`. A part of BrokerConfig."""

    share_coordinator_state_topic_num_partitions: int = setting(
        Kind.INT,
        1,
        default_text="as many as num.io.threads",
        least=1,
        doc="Partitions of __share_group_state, created with the first share group; the number is fixed from then "
        "on. Fewer than Kafka's 50, so that acknowledgements of many groups share a write.",
    )
    share_coordinator_state_topic_replication_factor: int = setting(
        Kind.SHORT,
        1,
        least=1,
        most=1,
        most_because=ONE_REPLICA,
        doc="Replication factor of __share_group_state; a single broker has one replica.",
    )
    share_coordinator_state_topic_min_isr: int = setting(
        Kind.SHORT,
        1,
        least=1,
        most=1,
        most_because=ONE_REPLICA,
        doc="min.insync.replicas of __share_group_state; there is one replica.",
    )
    share_coordinator_state_topic_segment_bytes: int = _int(
        100 * 1024 * 1024, "Segment size of __share_group_state.", (1024 * 1024, None)
    )
    share_coordinator_snapshot_update_records_per_snapshot: int = _int(
        500, "Maximum updates of a partition's state between two snapshots.", (0, 500)
    )
    share_coordinator_state_topic_prune_interval_ms: int = _int(
        300_000, "Interval of deleting records of __share_group_state that are replaced by a snapshot."
    )
    share_coordinator_cold_partition_snapshot_interval_ms: int = _int(
        300_000, "Time without a write after which a snapshot replaces the older records of a partition's state."
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
        for name in settings:
            yield f"group.{kind}.{name}", f"group.{kind}.min.{name}", f"group.{kind}.max.{name}"
