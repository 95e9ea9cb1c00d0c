"""The broker settings of the status page: whether there is one, where it listens, and by which names it may be asked.

Declarations and one rule. `broker_config` joins them with the others into the one BrokerConfig. Kafka has no such
page.
"""

from __future__ import annotations

import ipaddress
from dataclasses import dataclass

from broker.config.keys import Key, Kind, setting

STATUS_PORT = "status.port"


@dataclass(frozen=True, kw_only=True, init=False, repr=False, eq=False)
class StatusSettings:
    """Settings of the status page. Only ever part of a BrokerConfig."""

    status_page_enable: bool = setting(
        Key(
            name="status.page.enable",
            kind=Kind.BOOLEAN,
            default=True,
            doc="Whether the status page is served, and with it /metrics for Prometheus. Only reads; clients do not "
            "notice whether it runs.",
        )
    )
    status_host: str = setting(
        Key(
            name="status.host",
            kind=Kind.STRING,
            default="127.0.0.1",
            doc="The address that the status page listens on. One that other machines can reach needs "
            "insecure.listen=true, since the page asks nobody who they are.",
        )
    )
    status_port: int = setting(
        Key(
            name=STATUS_PORT,
            kind=Kind.INT,
            default=8080,
            least=0,
            most=65535,
            doc="The port of the status page; 0 takes any free one. If the default port is taken, any free one is "
            "taken instead; if a port that was asked for is taken, the broker does not start.",
        )
    )
    status_max_connections: int = setting(
        Key(
            name="status.max.connections",
            kind=Kind.INT,
            default=512,
            least=16,
            most=65535,
            doc="Connections that the status page holds. Beyond it the one goes that has waited longest without a "
            "request, so that probes and /metrics are always answered.",
        )
    )
    status_max_streams: int = setting(
        Key(
            name="status.max.streams",
            kind=Kind.INT,
            default=100,
            least=1,
            most=32767,
            doc="Screens of the status page that are kept up to date by a stream of events, at most half of "
            "status.max.connections. Further ones get 503 and ask every few seconds instead.",
        )
    )
    status_request_timeout_ms: int = setting(
        Key(
            name="status.request.timeout.ms",
            kind=Kind.INT,
            default=10_000,
            unit="ms",
            least=100,
            doc="Time within which a client of the status page has to send a whole request, and to read 64 KiB of an "
            "answer that waits for it; slower ones are dropped. Idle connections are kept three times as long.",
        )
    )
    status_allowed_hosts: tuple[str, ...] = setting(
        Key(
            name="status.allowed.hosts",
            kind=Kind.LIST,
            default=(),
            doc="Host names by which the status page may be asked, besides localhost and addresses. A page of another "
            "site cannot read it under a name of its own.",
        )
    )


def check_status_host(host: str, insecure_listen: bool) -> None:
    """Raise ValueError, worded for the user, if the status page may not listen there."""
    if insecure_listen or host == "localhost":
        return
    try:
        is_loopback = ipaddress.ip_address(host).is_loopback
    except ValueError:
        is_loopback = False
    if not is_loopback:
        raise ValueError(f"{host} can be reached from other machines; set insecure.listen=true if that is meant")
