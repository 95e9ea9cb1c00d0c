"""The TLS settings of a listener: its own before the broker's (`H05`). Pure."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from rotunda.broker.config.listener_overrides import own_name
from rotunda.broker.config.listeners import Listener
from rotunda.broker.config.settings.tls import NONE

if TYPE_CHECKING:
    from rotunda.broker.config.broker_config import BrokerConfig

#: Protocols with TLS.
PROTOCOLS = ("SSL", "SASL_SSL")

#: No listener has this name, nor settings of its own.
_PAGE = "(status page)"


@dataclass(frozen=True, slots=True)
class Store:
    """The source of certificates, and of a key: a file, or inline text. ``setting`` is its name in error messages."""

    setting: str
    kind: str
    location: str | None
    password: str | None
    certificates: str | None
    key: str | None = None
    key_password: str | None = None


@dataclass(frozen=True, slots=True)
class ListenerTls:
    """The settings of one listener. Equal settings with the same files have the same result."""

    listener: str
    keystore: Store
    truststore: Store
    client_auth: str
    versions: tuple[str, ...]
    ciphers: tuple[str, ...]
    mapping_rules: str


def all_tls(config: BrokerConfig) -> list[ListenerTls]:
    """Return the TLS settings of all listeners with TLS, and of the status page."""
    found = [*(tls_of(config, each) for each in config.bound_listeners), page_tls(config)]
    return [each for each in found if each is not None]


def page_tls(config: BrokerConfig) -> ListenerTls | None:
    """Return the status page's settings: the broker's certificate, without client certificates; None without HTTPS."""
    if not (config.status_page_enable and config.status_ssl_enable):
        return None
    settings = tls_of(config, Listener(_PAGE, config.status_host, config.status_port, "SSL"))
    return None if settings is None else replace(settings, client_auth=NONE)


def tls_of(config: BrokerConfig, listener: Listener) -> ListenerTls | None:
    """Return the TLS settings of a listener; None without TLS."""
    if listener.protocol not in PROTOCOLS:
        return None

    def value(name: str) -> Any:
        return config.of_listener(listener.name, name)

    client_auth = value("ssl.client.auth")
    # As in Kafka the broker's setting does not apply to clients that authenticate with SASL.
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
