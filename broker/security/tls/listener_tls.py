"""What a listener is told about TLS: its settings, its own before the broker's (`H05`). Pure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from broker.config.listener_overrides import own_name
from broker.config.tls import NONE

if TYPE_CHECKING:
    from broker.config.broker_config import BrokerConfig
    from broker.config.listeners import Listener

#: Protocols that are spoken inside TLS.
PROTOCOLS = ("SSL", "SASL_SSL")


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
