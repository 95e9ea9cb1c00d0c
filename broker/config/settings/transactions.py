"""The broker settings of transactions: their timeouts, and the storage of their state.

Declarations only. `broker_config` joins them with the others into the one BrokerConfig. Names are Kafka's; defaults are
Kafka's but where another is better for a single broker, which the text of the key explains.
"""

from __future__ import annotations

from dataclasses import dataclass

from rotunda.broker.config.keys import ONE_REPLICA, Key, Kind, setting


@dataclass(frozen=True, kw_only=True, init=False, repr=False, eq=False)
class TransactionSettings:
    """Settings of transactions. Only ever part of a BrokerConfig."""

    transaction_max_timeout_ms: int = setting(
        Key(
            name="transaction.max.timeout.ms",
            kind=Kind.INT,
            default=900_000,
            unit="ms",
            least=1,
            doc="Greatest transaction.timeout.ms that a producer may ask for; more is refused.",
        )
    )
    transactional_id_expiration_ms: int = setting(
        Key(
            name="transactional.id.expiration.ms",
            kind=Kind.INT,
            default=604_800_000,
            unit="ms",
            least=1,
            doc="A transactional id that was not used for so long is forgotten, unless a transaction of it is open.",
        )
    )
    transaction_state_max_bytes: int = setting(
        Key(
            name="transaction.state.max.bytes",
            kind=Kind.LONG,
            default=128 * 1024 * 1024,
            unit="bytes",
            least=1024 * 1024,
            dynamic=True,
            doc="Memory that all transactional ids may take, about 1.5 KB each. A new one for which there is no room "
            "is answered POLICY_VIOLATION. Kafka has no such limit but its heap.",
        )
    )
    transaction_abort_timed_out_transaction_cleanup_interval_ms: int = setting(
        Key(
            name="transaction.abort.timed.out.transaction.cleanup.interval.ms",
            kind=Kind.INT,
            default=1000,
            unit="ms",
            least=1,
            doc="How often open transactions are looked through for those that have timed out. Less than Kafka's "
            "10000, since readers wait that much longer for a producer that has gone.",
        )
    )
    transaction_remove_expired_transaction_cleanup_interval_ms: int = setting(
        Key(
            name="transaction.remove.expired.transaction.cleanup.interval.ms",
            kind=Kind.INT,
            default=3_600_000,
            unit="ms",
            least=1,
            doc="How often transactional ids are looked through for those that have expired.",
        )
    )
    transaction_partition_verification_enable: bool = setting(
        Key(
            name="transaction.partition.verification.enable",
            kind=Kind.BOOLEAN,
            default=True,
            dynamic=True,
            doc="Ask the transaction's coordinator before the first records of a transaction are appended to a "
            "partition, if the producer speaks a protocol older than transaction.version 2, which always does.",
        )
    )

    transaction_state_log_num_partitions: int = setting(
        Key(
            name="transaction.state.log.num.partitions",
            kind=Kind.INT,
            default=4,
            least=1,
            doc="Partitions of __transaction_state, which is made when the first transactional producer comes; it "
            "keeps the number it was made with. Fewer than Kafka's 50: many transactions share a write.",
        )
    )
    transaction_state_log_replication_factor: int = setting(
        Key(
            name="transaction.state.log.replication.factor",
            kind=Kind.SHORT,
            default=1,
            least=1,
            most=1,
            most_because=ONE_REPLICA,
            doc="Replicas of __transaction_state; one broker holds one.",
        )
    )
    transaction_state_log_min_isr: int = setting(
        Key(
            name="transaction.state.log.min.isr",
            kind=Kind.INT,
            default=1,
            least=1,
            most=1,
            most_because=ONE_REPLICA,
            doc="How many replicas must hold a record of __transaction_state; there is one.",
        )
    )
    transaction_state_log_segment_bytes: int = setting(
        Key(
            name="transaction.state.log.segment.bytes",
            kind=Kind.INT,
            default=100 * 1024 * 1024,
            unit="bytes",
            least=1024 * 1024,
            doc="Size of a segment of __transaction_state. Small ones are compacted sooner and loaded faster.",
        )
    )
