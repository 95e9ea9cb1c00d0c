"""Those settings of a producer that are about brokers and connections, as Kafka 4.3 has them. Declarations only."""

from __future__ import annotations

from dataclasses import dataclass

from broker.config.keys import Key, Kind, setting


def _recovery_complaint(value: str) -> str | None:
    return None if value.lower() in {"none", "rebootstrap"} else "String must be one of: rebootstrap, none"


@dataclass(frozen=True, kw_only=True)
class NetworkSettings:
    """The values, by Kafka's names with underscores. Times are milliseconds."""

    bootstrap_servers: tuple[str, ...] = setting(
        Key(
            name="bootstrap.servers",
            kind=Kind.LIST,
            default=(),
            doc="Brokers to begin with, as host:port. One that answers is enough: it names all others.",
        )
    )
    client_id: str = setting(
        Key(
            name="client.id",
            kind=Kind.STRING,
            default="",
            default_text="producer-1, producer-2 and so on; producer-ID with a transactional.id",
            doc="Who this is in the brokers' logs, metrics and quotas; the I/O thread is named after it.",
        )
    )
    max_in_flight_requests_per_connection: int = setting(
        Key(
            name="max.in.flight.requests.per.connection",
            kind=Kind.INT,
            default=5,
            least=1,
            doc="Requests on their way to a broker at a time; 1 keeps order without idempotence.",
        )
    )
    request_timeout_ms: int = setting(
        Key(
            name="request.timeout.ms",
            kind=Kind.INT,
            default=30_000,
            unit="ms",
            least=0,
            doc="A response that has not come by then ends its connection.",
        )
    )
    retry_backoff_ms: int = setting(
        Key(
            name="retry.backoff.ms",
            kind=Kind.LONG,
            default=100,
            unit="ms",
            least=0,
            doc="Wait before the first retry; doubled for each further one.",
        )
    )
    retry_backoff_max_ms: int = setting(
        Key(
            name="retry.backoff.max.ms",
            kind=Kind.LONG,
            default=1_000,
            unit="ms",
            least=0,
            doc="The longest wait before a retry.",
        )
    )
    reconnect_backoff_ms: int = setting(
        Key(
            name="reconnect.backoff.ms",
            kind=Kind.LONG,
            default=50,
            unit="ms",
            least=0,
            doc="Wait before the second attempt to connect to a broker; doubled for each further one.",
        )
    )
    reconnect_backoff_max_ms: int = setting(
        Key(
            name="reconnect.backoff.max.ms",
            kind=Kind.LONG,
            default=1_000,
            unit="ms",
            least=0,
            doc="The longest wait before an attempt to connect.",
        )
    )
    socket_connection_setup_timeout_ms: int = setting(
        Key(
            name="socket.connection.setup.timeout.ms",
            kind=Kind.LONG,
            default=10_000,
            unit="ms",
            doc="How long an attempt to connect may take; doubled for each further one.",
        )
    )
    socket_connection_setup_timeout_max_ms: int = setting(
        Key(
            name="socket.connection.setup.timeout.max.ms",
            kind=Kind.LONG,
            default=30_000,
            unit="ms",
            doc="The longest that an attempt to connect may take.",
        )
    )
    connections_max_idle_ms: int = setting(
        Key(
            name="connections.max.idle.ms",
            kind=Kind.LONG,
            default=540_000,
            unit="ms",
            doc="A connection that was not used for that long is closed; a negative number: never.",
        )
    )
    send_buffer_bytes: int = setting(
        Key(
            name="send.buffer.bytes",
            kind=Kind.INT,
            default=131_072,
            unit="bytes",
            least=-1,
            doc="Send buffer of a socket; -1 is the system's default.",
        )
    )
    receive_buffer_bytes: int = setting(
        Key(
            name="receive.buffer.bytes",
            kind=Kind.INT,
            default=32_768,
            unit="bytes",
            least=-1,
            doc="Receive buffer of a socket; -1 is the system's default.",
        )
    )
    client_dns_lookup: str = setting(
        Key(
            name="client.dns.lookup",
            kind=Kind.STRING,
            default="use_all_dns_ips",
            choices=("use_all_dns_ips", "resolve_canonical_bootstrap_servers_only"),
            doc="Which addresses of a name are tried.",
        )
    )
    metadata_max_age_ms: int = setting(
        Key(
            name="metadata.max.age.ms",
            kind=Kind.LONG,
            default=300_000,
            unit="ms",
            least=0,
            doc="Metadata are asked for anew when they are that old.",
        )
    )
    metadata_max_idle_ms: int = setting(
        Key(
            name="metadata.max.idle.ms",
            kind=Kind.LONG,
            default=300_000,
            unit="ms",
            least=5_000,
            doc="A topic that was not written to for that long is forgotten.",
        )
    )
    metadata_recovery_strategy: str = setting(
        Key(
            name="metadata.recovery.strategy",
            kind=Kind.STRING,
            default="rebootstrap",
            validator=_recovery_complaint,
            doc="When no known broker can be reached: begin anew from bootstrap.servers (rebootstrap), or go "
            "on trying (none).",
        )
    )
    metadata_recovery_rebootstrap_trigger_ms: int = setting(
        Key(
            name="metadata.recovery.rebootstrap.trigger.ms",
            kind=Kind.LONG,
            default=300_000,
            unit="ms",
            least=0,
            doc="After so long without metadata the client begins anew.",
        )
    )
