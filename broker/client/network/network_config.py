"""Settings of the network layer: Kafka 4.4's names, types, defaults and ranges, all times in milliseconds.

Declarations; `broker.client.producer.config` parses a user's configuration.
"""

from __future__ import annotations

from dataclasses import dataclass

from rotunda.broker.config.keys import Kind, setting

USE_ALL_DNS_IPS = "use_all_dns_ips"
CANONICAL_BOOTSTRAP = "resolve_canonical_bootstrap_servers_only"
REBOOTSTRAP = "rebootstrap"


def _recovery_complaint(value: str) -> str | None:
    return None if value.lower() in {"none", "rebootstrap"} else "String must be one of: rebootstrap, none"


@dataclass(frozen=True, kw_only=True)
class NetworkConfig:
    """The settings, by Kafka's names with underscores. Times are milliseconds."""

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
        USE_ALL_DNS_IPS,
        choices=(USE_ALL_DNS_IPS, CANONICAL_BOOTSTRAP),
        doc="Addresses of a host name to try.",
    )
    metadata_max_age_ms: int = setting(Kind.LONG, 300_000, least=0, doc="Age at which metadata are refreshed.")
    metadata_max_idle_ms: int = setting(
        Kind.LONG, 300_000, least=5_000, doc="Time without records after which a topic is removed from the metadata."
    )
    metadata_recovery_strategy: str = setting(
        Kind.STRING,
        REBOOTSTRAP,
        validator=_recovery_complaint,
        doc="Action when no known broker is reachable: connect to bootstrap.servers again (rebootstrap), or retry "
        "(none).",
    )
    metadata_recovery_rebootstrap_trigger_ms: int = setting(
        Kind.LONG, 300_000, least=0, doc="Time without metadata after which the client rebootstraps."
    )
