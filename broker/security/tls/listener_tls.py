"""What a listener is told about TLS: its settings, its own before the broker's (`H05`). Pure."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from rotunda.broker.config.listener_overrides import own_name
from rotunda.broker.config.listeners import Listener
from rotunda.broker.config.settings.tls import NONE

if TYPE_CHECKING:
    from rotunda.broker.config.broker_config import BrokerConfig

#: Protocols that are spoken inside TLS.
PROTOCOLS = ("SSL", "SASL_SSL")

#: No listener has this name, nor settings of its own.
_PAGE = "(status page)"


@dataclass(frozen=True, slots=True)
class Store:
    """Where certificates, and a key, are found: a file, or the text itself. ``setting`` names it in complaints."""

    setting: str
    kind: str
    location: str | None
    password: str | None
    certificates: str | None
    key: str | None = None
    key_password: str | None = None


@dataclass(frozen=True, slots=True)
class ListenerTls:
    """The settings of one listener. Two that are equal make the same of the same files."""

    listener: str
    keystore: Store
    truststore: Store
    client_auth: str
    versions: tuple[str, ...]
    ciphers: tuple[str, ...]
    mapping_rules: str


def all_tls(config: BrokerConfig) -> list[ListenerTls]:
    """Return the settings of everything that speaks TLS: listeners, and the status page."""
    found = [*(tls_of(config, each) for each in config.bound_listeners), page_tls(config)]
    return [each for each in found if each is not None]


def page_tls(config: BrokerConfig) -> ListenerTls | None:
    """Return what the status page serves with: the broker's certificate, and none from browsers; None without HTTPS."""
    if not (config.status_page_enable and config.status_ssl_enable):
        return None
    settings = tls_of(config, Listener(_PAGE, config.status_host, config.status_port, "SSL"))
    return None if settings is None else replace(settings, client_auth=NONE)


def tls_of(config: BrokerConfig, listener: Listener) -> ListenerTls | None:
    """Return the settings of a listener; None if it does not speak TLS."""
    if listener.protocol not in PROTOCOLS:
        return None

    def value(name: str) -> Any:
        return config.of_listener(listener.name, name)

    client_auth = value("ssl.client.auth")
    # As in Kafka the broker's setting is not for clients who prove by SASL who they are.
    if listener.protocol != "SSL" and own_name(listener.name, "ssl.client.auth") not in config.of_listeners:
        client_auth = NONE
    return ListenerTls(
        listener=listener.name,
        keystore=Store(
            "ssl.keystore",
            value("ssl.keystore.type").upper(),
            value("ssl.keystore.location"),
            value("ssl.keystore.password"),
            value("ssl.keystore.certificate.chain"),
            value("ssl.keystore.key"),
            value("ssl.key.password"),
        ),
        truststore=Store(
            "ssl.truststore",
            value("ssl.truststore.type").upper(),
            value("ssl.truststore.location"),
            value("ssl.truststore.password"),
            value("ssl.truststore.certificates"),
        ),
        client_auth=client_auth,
        versions=value("ssl.enabled.protocols"),
        ciphers=value("ssl.cipher.suites"),
        mapping_rules=value("ssl.principal.mapping.rules"),
    )
