"""The broker settings of the status page: whether there is one, its address, and its access.

Declarations and one rule. `broker_config` joins them with the others into the one BrokerConfig. Kafka has no such page.
"""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Sequence
from dataclasses import dataclass

from rotunda.broker.config.keys import Key, Kind, setting
from rotunda.broker.config.listeners import Listener

STATUS_PORT, STATUS_TOKEN = "status.port", "status.token"

_SHORTEST_TOKEN = 16
_TOKEN = re.compile(r"[!-~]*")


def _token_complaint(token: str) -> str | None:
    if len(token) < _SHORTEST_TOKEN or not _TOKEN.fullmatch(token):
        return f"a token has at least {_SHORTEST_TOKEN} characters, of ASCII and without spaces; `openssl rand -hex 16`"
    return None


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
            "status.ssl.enable=true, and status.token or a listener whose clients authenticate by SASL; or else "
            "insecure.listen=true.",
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
    status_token: str | None = setting(
        Key(
            name=STATUS_TOKEN,
            kind=Kind.PASSWORD,
            default=None,
            nullable=True,
            sensitive=True,
            validator=_token_complaint,
            doc="What whoever looks at the status page has to give, as a bearer token or as the password that a "
            "browser asks for. At least 16 characters. Without it nobody on this machine is asked; others are, unless "
            "insecure.listen=true, for a user who may describe the cluster.",
        )
    )
    metrics_token: str | None = setting(
        Key(
            name="metrics.token",
            kind=Kind.PASSWORD,
            default=None,
            nullable=True,
            sensitive=True,
            validator=_token_complaint,
            doc="What Prometheus has to give for /metrics, as a bearer token, and nothing else is shown for. At least "
            "16 characters. status.token is taken as well. Without it /metrics is shown to those who see the page.",
        )
    )
    status_ssl_enable: bool = setting(
        Key(
            name="status.ssl.enable",
            kind=Kind.BOOLEAN,
            default=False,
            doc="Whether the status page is served by HTTPS, with the broker's ssl.keystore settings, those without a "
            "listener's name.",
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


def check_status_host(config: StatusSettings, listeners: Sequence[Listener], insecure_listen: bool) -> None:
    """Raise ValueError, worded for the user, if the page's address is not allowed."""
    if insecure_listen or not config.status_page_enable or is_loopback(config.status_host):
        return
    missing = []
    if not config.status_ssl_enable:
        missing.append("encrypted: set status.ssl.enable=true")
    if not config.status_token and not any(listener.protocol.startswith("SASL_") for listener in listeners):
        missing.append(f"protected: set {STATUS_TOKEN}, or let a listener authenticate its clients")
    if missing:
        raise ValueError(
            f"{config.status_host} can be reached from other machines and the page is not {', nor '.join(missing)}; "
            "set insecure.listen=true if that is meant"
        )


def is_loopback(host: str) -> bool:
    """Return whether only this machine can reach an address."""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False
