"""The broker settings of group coordination: rebalances, and the retention of offsets.

Declarations only. `broker_config` joins them with the others into the one BrokerConfig. Names are Kafka's; defaults are
Kafka's but where another is better for a single broker, which the text of the key explains.
"""

from __future__ import annotations

from dataclasses import dataclass

from rotunda.broker.config.keys import MAX_INT, ONE_REPLICA, Kind, setting


@dataclass(frozen=True, kw_only=True, init=False, repr=False, eq=False)
class GroupSettings:
    """Settings of consumer groups. A part of BrokerConfig."""

    offsets_topic_num_partitions: int = setting(
        Kind.INT,
        1,
        default_text="as many as num.io.threads",
        least=1,
        doc="Partitions of __consumer_offsets, created with the first group; the number is fixed from then on. "
        "Fewer than Kafka's 50, so that commits of many groups share a write.",
    )
    offsets_topic_replication_factor: int = setting(
        Kind.SHORT,
        1,
        least=1,
        most=1,
        most_because=ONE_REPLICA,
        doc="Replication factor of __consumer_offsets; a single broker has one replica.",
    )
    offsets_topic_segment_bytes: int = setting(
        Kind.INT,
        100 * 1024 * 1024,
        least=1024 * 1024,
        doc="Segment size of __consumer_offsets. Small segments are compacted sooner and loaded faster.",
    )
    group_coordinator_append_linger_ms: int = setting(
        Kind.INT,
        -1,
        least=-1,
        most=1000,
        doc="How long an offset commit waits to be written together with others, while many clients commit. With "
        'few commits each is written at once. -1, Kafka\'s "adaptive", and 0: no wait; simultaneous commits '
        "share a write.",
    )
    group_initial_rebalance_delay_ms: int = setting(
        Kind.INT,
        0,
        least=0,
        doc="How long the first rebalance of an empty group waits for more members; each join prolongs it. With "
        "Kafka's default of 3000 every test with a group waits for it.",
    )
    group_min_session_timeout_ms: int = setting(
        Kind.INT, 6000, least=1, doc="Minimum session timeout of members of classic groups."
    )
    group_max_session_timeout_ms: int = setting(
        Kind.INT, 30 * 60 * 1000, least=1, doc="Maximum session timeout of members of classic groups."
    )
    group_max_size: int = setting(Kind.INT, MAX_INT, least=1, doc="Maximum number of members of a classic group.")
    group_state_max_bytes: int = setting(
        Kind.LONG,
        256 * 1024 * 1024,
        least=1024 * 1024,
        dynamic=True,
        doc="Memory for the state of all groups: members, subscriptions, committed offsets, and the records that "
        "share groups have in flight. When it is full, new members get GROUP_MAX_SIZE_REACHED, new offsets "
        "INVALID_COMMIT_OFFSET_SIZE, and share groups no further records until some are acknowledged. Kafka's "
        "limit is its heap.",
    )
    offsets_retention_minutes: int = setting(
        Kind.INT,
        7 * 24 * 60,
        least=1,
        doc="How long offsets are kept after their group has lost its last member, or, without members, after the "
        "last commit.",
    )
    offsets_retention_check_interval_ms: int = setting(
        Kind.LONG, 600_000, least=1, doc="Interval of the check for expired offsets."
    )
    offset_metadata_max_bytes: int = setting(
        Kind.INT, 4096, doc="Maximum length of the metadata string of a committed offset."
    )
