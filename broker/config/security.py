"""The broker settings of listeners with TLS or SASL: kept and described, and read by nothing.

Tools that set them get on, as with a Kafka whose listeners are all of plain text.
Declarations only; `broker_config` joins them with the others. Names, types and defaults are Kafka's, which changes
these of one broker at a time. Those that hold secrets, files or Java's classes are not among them.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from broker.config.keys import Key, Kind, Value, setting

_NO_SASL = "Kept for tools; no listener asks for credentials."
_NO_TLS = "Kept for tools; no listener speaks TLS."


def _kept(name: str, kind: Kind, default: Value, **rest: Any) -> Any:
    doc = _NO_SASL if name.startswith("sasl.") else _NO_TLS
    key = Key(
        name=name, kind=kind, default=default, doc=doc, dynamic=True, per_broker=True, nullable=default is None, **rest
    )
    return setting(key)


@dataclass(frozen=True, kw_only=True, init=False, repr=False, eq=False)
class SecuritySettings:
    """Settings of listeners that are not of plain text. Only ever part of a BrokerConfig."""

    sasl_enabled_mechanisms: tuple[str, ...] = _kept("sasl.enabled.mechanisms", Kind.LIST, ("GSSAPI",))
    sasl_kerberos_kinit_cmd: str = _kept("sasl.kerberos.kinit.cmd", Kind.STRING, "/usr/bin/kinit")
    sasl_kerberos_min_time_before_relogin: int = _kept(
        "sasl.kerberos.min.time.before.relogin", Kind.LONG, 60_000, unit="ms"
    )
    sasl_kerberos_principal_to_local_rules: tuple[str, ...] = _kept(
        "sasl.kerberos.principal.to.local.rules", Kind.LIST, ("DEFAULT",)
    )
    sasl_kerberos_service_name: str | None = _kept("sasl.kerberos.service.name", Kind.STRING, None)
    sasl_kerberos_ticket_renew_jitter: float = _kept("sasl.kerberos.ticket.renew.jitter", Kind.DOUBLE, 0.05)
    sasl_kerberos_ticket_renew_window_factor: float = _kept(
        "sasl.kerberos.ticket.renew.window.factor", Kind.DOUBLE, 0.8
    )
    sasl_login_refresh_buffer_seconds: int = _kept("sasl.login.refresh.buffer.seconds", Kind.SHORT, 300, unit="seconds")
    sasl_login_refresh_min_period_seconds: int = _kept(
        "sasl.login.refresh.min.period.seconds", Kind.SHORT, 60, unit="seconds"
    )
    sasl_login_refresh_window_factor: float = _kept("sasl.login.refresh.window.factor", Kind.DOUBLE, 0.8)
    sasl_login_refresh_window_jitter: float = _kept("sasl.login.refresh.window.jitter", Kind.DOUBLE, 0.05)
    sasl_mechanism_inter_broker_protocol: str = _kept("sasl.mechanism.inter.broker.protocol", Kind.STRING, "GSSAPI")
    ssl_cipher_suites: tuple[str, ...] = _kept("ssl.cipher.suites", Kind.LIST, ())
    ssl_client_auth: str = _kept("ssl.client.auth", Kind.STRING, "none", choices=("required", "requested", "none"))
    ssl_enabled_protocols: tuple[str, ...] = _kept("ssl.enabled.protocols", Kind.LIST, ("TLSv1.2", "TLSv1.3"))
    ssl_endpoint_identification_algorithm: str = _kept("ssl.endpoint.identification.algorithm", Kind.STRING, "https")
    ssl_keymanager_algorithm: str = _kept("ssl.keymanager.algorithm", Kind.STRING, "SunX509")
    ssl_protocol: str = _kept("ssl.protocol", Kind.STRING, "TLSv1.3")
    ssl_provider: str | None = _kept("ssl.provider", Kind.STRING, None)
    ssl_secure_random_implementation: str | None = _kept("ssl.secure.random.implementation", Kind.STRING, None)
    ssl_trustmanager_algorithm: str = _kept("ssl.trustmanager.algorithm", Kind.STRING, "PKIX")
