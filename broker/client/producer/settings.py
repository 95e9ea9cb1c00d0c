"""The settings of a producer: Kafka 4.3's names, types, defaults and ranges. Declarations only.

`config` parses a user's configuration into them; docs/producer-settings.md is generated from them. The TLS and SASL
settings (security.protocol, ssl.*, sasl.*) are read by `broker.client.access`.
"""

from __future__ import annotations

from dataclasses import dataclass

from rotunda.broker.config.keys import Kind, setting
from rotunda.broker.config.settings.log import LZ4_LEVELS, ZSTD_LEVELS, gzip_level_complaint
from rotunda.broker.protocol.records import CODECS


def _recovery_complaint(value: str) -> str | None:
    return None if value.lower() in {"none", "rebootstrap"} else "String must be one of: rebootstrap, none"


@dataclass(frozen=True, kw_only=True)
class NetworkSettings:
    """The values, by Kafka's names with underscores. Times are milliseconds."""

    bootstrap_servers: tuple[str, ...] = setting(
        Kind.LIST,
        (),
        doc="Addresses of some brokers, as host:port. One reachable broker is enough: it returns all others.",
    )
    client_id: str = setting(
        Kind.STRING,
        "",
        default_text="producer-1, producer-2 and so on; producer-ID with a transactional.id",
        doc="Client id in the brokers' logs, metrics and quotas, and in the name of the I/O thread.",
    )
    max_in_flight_requests_per_connection: int = setting(
        Kind.INT,
        5,
        least=1,
        doc="Maximum number of requests in flight to a broker; 1 keeps the order without idempotence.",
    )
    request_timeout_ms: int = setting(
        Kind.INT, 30_000, least=0, doc="Maximum wait for a response. Then the connection is closed."
    )
    retry_backoff_ms: int = setting(
        Kind.LONG, 100, least=0, doc="Delay before the first retry; doubled with each retry."
    )
    retry_backoff_max_ms: int = setting(Kind.LONG, 1_000, least=0, doc="Maximum delay before a retry.")
    reconnect_backoff_ms: int = setting(
        Kind.LONG, 50, least=0, doc="Delay before the second attempt to connect to a broker; doubled with each attempt."
    )
    reconnect_backoff_max_ms: int = setting(
        Kind.LONG, 1_000, least=0, doc="Maximum delay before an attempt to connect."
    )
    socket_connection_setup_timeout_ms: int = setting(
        Kind.LONG, 10_000, doc="Timeout of an attempt to connect; doubled with each attempt."
    )
    socket_connection_setup_timeout_max_ms: int = setting(
        Kind.LONG, 30_000, doc="Maximum timeout of an attempt to connect."
    )
    connections_max_idle_ms: int = setting(
        Kind.LONG, 540_000, doc="Idle time after which a connection is closed; negative: never."
    )
    send_buffer_bytes: int = setting(
        Kind.INT, 131_072, least=-1, doc="Send buffer of a socket; -1 is the system's default."
    )
    receive_buffer_bytes: int = setting(
        Kind.INT, 32_768, least=-1, doc="Receive buffer of a socket; -1 is the system's default."
    )
    client_dns_lookup: str = setting(
        Kind.STRING,
        "use_all_dns_ips",
        choices=("use_all_dns_ips", "resolve_canonical_bootstrap_servers_only"),
        doc="Addresses of a host name to try.",
    )
    metadata_max_age_ms: int = setting(Kind.LONG, 300_000, least=0, doc="Age at which metadata are refreshed.")
    metadata_max_idle_ms: int = setting(
        Kind.LONG, 300_000, least=5_000, doc="Time without records after which a topic is removed from the metadata."
    )
    metadata_recovery_strategy: str = setting(
        Kind.STRING,
        "rebootstrap",
        validator=_recovery_complaint,
        doc="Action when no known broker is reachable: connect to bootstrap.servers again (rebootstrap), or retry "
        "(none).",
    )
    metadata_recovery_rebootstrap_trigger_ms: int = setting(
        Kind.LONG, 300_000, least=0, doc="Time without metadata after which the client rebootstraps."
    )


def _non_empty(value: str) -> str | None:
    return None if value else "String must be non-empty"


@dataclass(frozen=True, kw_only=True)
class ProducerSettings(NetworkSettings):
    """The values, by Kafka's names with underscores. Times are milliseconds."""

    acks: str = setting(
        Kind.STRING,
        "all",
        choices=("all", "-1", "0", "1"),
        doc="Replicas that must have a record before it counts as delivered: all in sync (all, -1), the leader "
        "(1), or none (0).",
    )
    enable_idempotence: bool = setting(
        Kind.BOOLEAN,
        True,
        doc="Write each record exactly once and in order, also with retries. Needs acks=all, retries and at most "
        "5 requests in flight. If not set explicitly, it is disabled by incompatible acks or retries.",
    )
    transactional_id: str | None = setting(
        Kind.STRING,
        None,
        nullable=True,
        validator=_non_empty,
        doc="Name of a transactional producer, the same over restarts; the latest producer with it fences the others.",
    )
    transaction_timeout_ms: int = setting(
        Kind.INT, 60_000, least=1, doc="Time after which the broker aborts an open transaction."
    )
    key_serializer: object = setting(
        Kind.CLASS,
        "bytes",
        nullable=True,
        doc="Serializer of keys: a function (topic, key, headers), or `bytes`, `string`, `integer`, `long`, "
        "`double`, `json`, a name of Kafka's (`org.apache.kafka.common.serialization.StringSerializer`), or "
        "`module:name` of a function.",
    )
    value_serializer: object = setting(
        Kind.CLASS, "bytes", nullable=True, doc="Serializer of values, like key.serializer."
    )
    batch_size: int = setting(
        Kind.INT, 16_384, unit="bytes", least=0, doc="Size at which a batch is sent; 0: one record per batch."
    )
    linger_ms: int = setting(Kind.LONG, 5, least=0, doc="Time that a batch waits for more records.")
    buffer_memory: int = setting(
        Kind.LONG,
        33_554_432,
        unit="bytes",
        least=0,
        doc="Memory for undelivered records. When it is full, `send` waits.",
    )
    max_block_ms: int = setting(
        Kind.LONG,
        60_000,
        least=0,
        doc="Maximum wait of `send`, `partitions_for` and transaction calls, for metadata, memory or the broker.",
    )
    max_request_size: int = setting(
        Kind.INT,
        1_048_576,
        unit="bytes",
        least=0,
        doc="Maximum uncompressed size of a record, and maximum size of a request.",
    )
    compression_type: str = setting(Kind.STRING, "none", choices=CODECS, doc="Codec of batches.")
    compression_gzip_level: int = setting(
        Kind.INT, -1, validator=gzip_level_complaint, doc="Level of gzip, 1 to 9; -1 is the library's own."
    )
    compression_lz4_level: int = setting(Kind.INT, 9, least=LZ4_LEVELS[0], most=LZ4_LEVELS[1], doc="Level of lz4.")
    compression_zstd_level: int = setting(Kind.INT, 3, least=ZSTD_LEVELS[0], most=ZSTD_LEVELS[1], doc="Level of zstd.")
    partitioner_class: object = setting(
        Kind.CLASS,
        None,
        nullable=True,
        doc="A function (topic, key, key's bytes, value, value's bytes, cluster) that returns a "
        "partition, or `RoundRobinPartitioner`; none: the key's hash, or the sticky partition.",
    )
    partitioner_ignore_keys: bool = setting(
        Kind.BOOLEAN, False, doc="Send records with a key to the sticky partition too."
    )
    partitioner_adaptive_partitioning_enable: bool = setting(
        Kind.BOOLEAN, True, doc="Prefer partitions with few waiting batches as sticky partition."
    )
    partitioner_availability_timeout_ms: int = setting(
        Kind.LONG,
        0,
        least=0,
        doc="The sticky partitioner avoids brokers that have not accepted ready batches for this long; 0: off.",
    )
    interceptor_classes: tuple[object, ...] = setting(
        Kind.LIST,
        (),
        doc="Objects with `on_send(record)` and `on_acknowledgement(metadata, error)`, or `module:name` "
        "of their classes.",
    )
    retries: int = setting(
        Kind.INT,
        2_147_483_647,
        least=0,
        most=2_147_483_647,
        doc="Maximum number of retries of a batch, within `delivery.timeout.ms`.",
    )
    delivery_timeout_ms: int = setting(
        Kind.INT,
        120_000,
        least=0,
        doc="Time after which an unacknowledged record fails. At least linger.ms plus request.timeout.ms.",
    )
