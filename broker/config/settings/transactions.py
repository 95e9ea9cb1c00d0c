"""The broker settings of transactions: their timeouts, and the storage of their state.

Declarations only. `broker_config` joins them with the others into the one BrokerConfig. Names are Kafka's; defaults are
Kafka's but where another is better for a single broker, which the text of the key explains.
"""

from __future__ import annotations

from dataclasses import dataclass

from rotunda.broker.config.keys import ONE_REPLICA, Kind, setting


@dataclass(frozen=True, kw_only=True, init=False, repr=False, eq=False)
class TransactionSettings:
    """Settings of transactions. A part of BrokerConfig."""

    transaction_max_timeout_ms: int = setting(
        Kind.INT, 900_000, least=1, doc="Maximum transaction.timeout.ms of producers; larger ones are rejected."
    )
    transactional_id_expiration_ms: int = setting(
        Kind.INT,
        604_800_000,
        least=1,
        doc="Delete transactional ids unused for this long, except those with an open transaction.",
    )
    transaction_state_max_bytes: int = setting(
        Kind.LONG,
        128 * 1024 * 1024,
        least=1024 * 1024,
        dynamic=True,
        doc="Memory for the state of all transactional ids, about 1.5 KB each. When it is full, new ids get "
        "POLICY_VIOLATION. Kafka's limit is its heap.",
    )
    transaction_abort_timed_out_transaction_cleanup_interval_ms: int = setting(
        Kind.INT,
        1000,
        least=1,
        doc="Interval of the check for timed out transactions. Less than Kafka's 10000, because consumers wait "
        "that much longer for the end of an abandoned transaction.",
    )
    transaction_remove_expired_transaction_cleanup_interval_ms: int = setting(
        Kind.INT, 3_600_000, least=1, doc="Interval of the check for expired transactional ids."
    )
    transaction_partition_verification_enable: bool = setting(
        Kind.BOOLEAN,
        True,
        dynamic=True,
        doc="Verify with the coordinator that a partition is part of the transaction before its first records are "
        "appended, for producers with a protocol older than transaction.version 2, which always does.",
    )

    transaction_state_log_num_partitions: int = setting(
        Kind.INT,
        4,
        least=1,
        doc="Partitions of __transaction_state, created with the first transactional producer; the number is "
        "fixed from then on. Fewer than Kafka's 50, so that many transactions share a write.",
    )
    transaction_state_log_replication_factor: int = setting(
        Kind.SHORT,
        1,
        least=1,
        most=1,
        most_because=ONE_REPLICA,
        doc="Replication factor of __transaction_state; a single broker has one replica.",
    )
    transaction_state_log_min_isr: int = setting(
        Kind.INT,
        1,
        least=1,
        most=1,
        most_because=ONE_REPLICA,
        doc="min.insync.replicas of __transaction_state; there is one replica.",
    )
    transaction_state_log_segment_bytes: int = setting(
        Kind.INT,
        100 * 1024 * 1024,
        least=1024 * 1024,
        doc="Segment size of __transaction_state. Small segments are compacted sooner and loaded faster.",
    )
