"""Settings of the network layer: Kafka's names with underscores, Kafka 4.3's defaults, all times in milliseconds.

A plain value; the code that reads the user's configuration validates it first.
"""

from __future__ import annotations

from dataclasses import dataclass

USE_ALL_DNS_IPS = "use_all_dns_ips"
CANONICAL_BOOTSTRAP = "resolve_canonical_bootstrap_servers_only"
REBOOTSTRAP = "rebootstrap"


@dataclass(frozen=True, slots=True, kw_only=True)
class NetworkConfig:
    """The settings by Kafka's names."""

    client_id: str = ""
    max_in_flight_requests_per_connection: int = 5
    request_timeout_ms: float = 30_000
    reconnect_backoff_ms: float = 50
    reconnect_backoff_max_ms: float = 1000
    retry_backoff_ms: float = 100
    retry_backoff_max_ms: float = 1000
    socket_connection_setup_timeout_ms: float = 10_000
    socket_connection_setup_timeout_max_ms: float = 30_000
    #: Negative: idle connections are never closed.
    connections_max_idle_ms: float = 540_000
    #: -1: the operating system's default.
    send_buffer_bytes: int = 131_072
    receive_buffer_bytes: int = 32_768
    metadata_max_age_ms: float = 300_000
    metadata_max_idle_ms: float = 300_000
    #: "rebootstrap" or "none" (KIP-899).
    metadata_recovery_strategy: str = REBOOTSTRAP
    #: After this time without metadata the client bootstraps again from `bootstrap.servers` (KIP-1102).
    metadata_recovery_rebootstrap_trigger_ms: float = 300_000
