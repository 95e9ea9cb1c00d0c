"""The broker settings of group coordination: rebalances, and the retention of offsets.

Declarations only. `broker_config` joins them with the others into the one BrokerConfig. Names are Kafka's; defaults are
Kafka's but where another is better for a single broker, which the text of the key explains.
"""

from __future__ import annotations

from dataclasses import dataclass

from rotunda.broker.config.keys import MAX_INT, ONE_REPLICA, Key, Kind, setting


@dataclass(frozen=True, kw_only=True, init=False, repr=False, eq=False)
class GroupSettings:
    """Settings of consumer groups. Only ever part of a BrokerConfig."""

    offsets_topic_num_partitions: int = setting(
        Key(
            name="offsets.topic.num.partitions",
            kind=Kind.INT,
            default=1,
            default_text="as many as num.io.threads",
            least=1,
            doc="Partitions of __consumer_offsets, which is made when the first group is; it keeps the number that it "
            "was made with. Fewer than Kafka's 50: commits of many groups share a write.",
        )
    )
    offsets_topic_replication_factor: int = setting(
        Key(
            name="offsets.topic.replication.factor",
            kind=Kind.SHORT,
            default=1,
            least=1,
            most=1,
            most_because=ONE_REPLICA,
            doc="Replicas of __consumer_offsets; one broker holds one.",
        )
    )
    offsets_topic_segment_bytes: int = setting(
        Key(
            name="offsets.topic.segment.bytes",
            kind=Kind.INT,
            default=100 * 1024 * 1024,
            unit="bytes",
            least=1024 * 1024,
            doc="Size of a segment of __consumer_offsets. Small ones are compacted sooner and loaded faster.",
        )
    )
    group_coordinator_append_linger_ms: int = setting(
        Key(
            name="group.coordinator.append.linger.ms",
            kind=Kind.INT,
            default=-1,
            unit="ms",
            least=-1,
            most=1000,
            doc="How long commits of offsets wait for others to be written with while many clients commit. As long "
            "as few do, each commit is written at once. -1, which Kafka calls adaptive, and 0: none waits; those that "
            "come together are written together.",
        )
    )
    group_initial_rebalance_delay_ms: int = setting(
        Key(
            name="group.initial.rebalance.delay.ms",
            kind=Kind.INT,
            default=0,
            unit="ms",
            least=0,
            doc="How long the first rebalance of an empty group waits for more members; each that comes prolongs it. "
            "Kafka's default of 3000 makes every test with a group wait for it.",
        )
    )
    group_min_session_timeout_ms: int = setting(
        Key(
            name="group.min.session.timeout.ms",
            kind=Kind.INT,
            default=6000,
            unit="ms",
            least=1,
            doc="Least session timeout that a member may ask for.",
        )
    )
    group_max_session_timeout_ms: int = setting(
        Key(
            name="group.max.session.timeout.ms",
            kind=Kind.INT,
            default=30 * 60 * 1000,
            unit="ms",
            least=1,
            doc="Greatest session timeout that a member may ask for.",
        )
    )
    group_max_size: int = setting(
        Key(
            name="group.max.size",
            kind=Kind.INT,
            default=MAX_INT,
            least=1,
            doc="Greatest number of members of a group.",
        )
    )
    group_state_max_bytes: int = setting(
        Key(
            name="group.state.max.bytes",
            kind=Kind.LONG,
            default=256 * 1024 * 1024,
            unit="bytes",
            least=1024 * 1024,
            dynamic=True,
            doc="Memory that all groups may take: members, what they subscribe to, and committed offsets. A member "
            "for which there is no room is answered GROUP_MAX_SIZE_REACHED, and new offsets "
            "INVALID_COMMIT_OFFSET_SIZE. Kafka has no such limit but its heap.",
        )
    )
    offsets_retention_minutes: int = setting(
        Key(
            name="offsets.retention.minutes",
            kind=Kind.INT,
            default=7 * 24 * 60,
            unit="minutes",
            least=1,
            doc="How long offsets are kept once their group has lost its last member, or, in groups without members, "
            "after the last commit.",
        )
    )
    offsets_retention_check_interval_ms: int = setting(
        Key(
            name="offsets.retention.check.interval.ms",
            kind=Kind.LONG,
            default=600_000,
            unit="ms",
            least=1,
            doc="How often offsets are looked through for those whose retention is over.",
        )
    )
    offset_metadata_max_bytes: int = setting(
        Key(
            name="offset.metadata.max.bytes",
            kind=Kind.INT,
            default=4096,
            unit="bytes",
            doc="Greatest length of the text that a commit may carry.",
        )
    )
