"""The broker settings of the status page: whether there is one, its address, and its access.

Declarations and one rule. `broker_config` joins them with the others into the one BrokerConfig. Kafka has no such page.
"""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Sequence
from dataclasses import dataclass

from rotunda.broker.config.keys import Kind, setting
from rotunda.broker.config.listeners import Listener

STATUS_PORT, STATUS_TOKEN = "status.port", "status.token"

_SHORTEST_TOKEN = 16
_TOKEN = re.compile(r"[!-~]*")


def _token_complaint(token: str) -> str | None:
    if len(token) < _SHORTEST_TOKEN or not _TOKEN.fullmatch(token):
        return f"needs at least {_SHORTEST_TOKEN} ASCII characters without spaces; try `openssl rand -hex 16`"
    return None


@dataclass(frozen=True, kw_only=True, init=False, repr=False, eq=False)
class StatusSettings:
    """Settings of the status page. A part of BrokerConfig."""

    status_page_enable: bool = setting(
        Kind.BOOLEAN,
        True,
        doc="Serve the status page and /metrics for Prometheus. It is read-only and does not affect clients.",
    )
    status_host: str = setting(
        Kind.STRING,
        "127.0.0.1",
        doc="The address that the status page listens on. An address that other machines can reach needs "
        "status.ssl.enable=true, and status.token or a listener with SASL; or insecure.listen=true.",
    )
    status_port: int = setting(
        Kind.INT,
        8080,
        least=0,
        most=65535,
        doc="The port of the status page; 0: any free port. If the default port is in use, any free port is used; "
        "if a configured port is in use, the broker does not start.",
    )
    status_token: str | None = setting(
        Kind.PASSWORD,
        None,
        nullable=True,
        sensitive=True,
        validator=_token_complaint,
        doc="Token for the status page, as a bearer token or as a browser's password. At least 16 characters. "
        "Without a token, clients on this machine need none; others authenticate as a user with DESCRIBE on "
        "the cluster, unless insecure.listen=true.",
    )
    metrics_token: str | None = setting(
        Kind.PASSWORD,
        None,
        nullable=True,
        sensitive=True,
        validator=_token_complaint,
        doc="Bearer token for /metrics only, for Prometheus. At least 16 characters. status.token is accepted "
        "too. Without it /metrics has the access rules of the page.",
    )
    status_ssl_enable: bool = setting(
        Kind.BOOLEAN,
        False,
        doc="Serve the status page over HTTPS, with the broker's ssl.keystore settings without a listener prefix.",
    )
    status_records_enable: bool | None = setting(
        Kind.BOOLEAN,
        None,
        nullable=True,
        default_text="true if only this machine can reach status.host, else false",
        doc="Show the records of topics on the status page. The page reads them as a Kafka client, with the rights "
        "of the user who has logged in; without a user as ANONYMOUS, over a listener without SASL.",
    )
    status_max_connections: int = setting(
        Kind.INT,
        512,
        least=16,
        most=65535,
        doc="Maximum number of connections of the status page. Above it the connection that has been idle longest "
        "is closed, so that probes and /metrics are always served.",
    )
    status_max_streams: int = setting(
        Kind.INT,
        100,
        least=1,
        most=32767,
        doc="Maximum number of screens updated by an event stream, at most half of status.max.connections. "
        "Further screens get 503 and poll every few seconds.",
    )
    status_request_timeout_ms: int = setting(
        Kind.INT,
        10_000,
        least=100,
        doc="Time limit for a client of the status page to send a whole request, and to read each 64 KiB of a "
        "response; slower clients are disconnected. Idle connections are kept three times as long.",
    )
    status_allowed_hosts: tuple[str, ...] = setting(
        Kind.LIST,
        (),
        doc="Host names of the status page, in addition to localhost and addresses. Requests with another Host "
        "header are rejected, so that other sites cannot read it.",
    )

    @property
    def shows_records(self) -> bool:
        enabled = self.status_records_enable
        return is_loopback(self.status_host) if enabled is None else enabled


def check_status_host(config: StatusSettings, listeners: Sequence[Listener], insecure_listen: bool) -> None:
    """Raise ValueError, worded for the user, if the page's address is not allowed."""
    if insecure_listen or not config.status_page_enable or is_loopback(config.status_host):
        return
    missing = []
    if not config.status_ssl_enable:
        missing.append("encrypted: set status.ssl.enable=true")
    if not config.status_token and not any(listener.protocol.startswith("SASL_") for listener in listeners):
        missing.append(f"protected: set {STATUS_TOKEN}, or configure a listener with SASL")
    if missing:
        raise ValueError(
            f"other machines can reach {config.status_host}, and the page is not {', nor '.join(missing)}; "
            "or allow it with insecure.listen=true"
        )


def is_loopback(host: str) -> bool:
    """Return whether only this machine can reach an address."""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False
