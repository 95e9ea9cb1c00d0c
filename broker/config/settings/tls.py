"""The settings of TLS: certificates, trust stores, versions and ciphers. Declarations only.

Each may be set for one listener, with the prefix ``listener.name.<listener>.`` (`H05`). `broker.security.tls` checks
whether the files can be used.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from rotunda.broker.config.keys import Kind, setting

NONE, REQUESTED, REQUIRED = "none", "requested", "required"

#: The versions that are served; older ones are broken (RFC 8996).
VERSIONS = ("TLSv1.2", "TLSv1.3")

STORE_TYPES = ("JKS", "PKCS12", "PEM")

_RELOADED = "Reloaded by `rotunda reload`, and when an ssl setting of the broker changes."


def _store_type_complaint(text: str) -> str | None:
    return None if text.upper() in STORE_TYPES else f"must be one of {', '.join(STORE_TYPES)}"


def _versions_complaint(versions: tuple[str, ...]) -> str | None:
    unknown = [version for version in versions if version not in VERSIONS]
    if unknown:
        return f"{', '.join(unknown)} is not served: name {' or '.join(VERSIONS)}, or both"
    return None if versions else f"must name {' or '.join(VERSIONS)}, or both"


def _text(doc: str, default: str | None = None, validator: Callable[[str], str | None] | None = None) -> Any:
    nullable = default is None
    return setting(Kind.STRING, default, nullable=nullable, dynamic=True, per_broker=True, validator=validator, doc=doc)


def _secret(doc: str) -> Any:
    return setting(Kind.PASSWORD, None, nullable=True, dynamic=True, per_broker=True, sensitive=True, doc=doc)


@dataclass(frozen=True, kw_only=True, init=False, repr=False, eq=False)
class TlsSettings:
    """Certificates and rules of listeners that speak TLS. A part of BrokerConfig."""

    ssl_keystore_type: str = _text(
        "Type of ssl.keystore.location: PEM or PKCS12. With JKS a PKCS#12 file is read too, as in Java; Java's "
        "own format is not supported, convert it with keytool.",
        "JKS",
        _store_type_complaint,
    )
    ssl_keystore_location: str | None = _text(
        f"File with the private key and the certificate of a listener, followed by its issuers'. {_RELOADED}"
    )
    ssl_keystore_password: str | None = _secret("Password of ssl.keystore.location of type PKCS12.")
    ssl_keystore_key: str | None = _secret("The private key as PEM, instead of a file; with type PEM.")
    ssl_keystore_certificate_chain: str | None = _secret(
        "The certificate and those of its issuers as PEM, instead of a file."
    )
    ssl_key_password: str | None = _secret("Password of an encrypted private key.")
    ssl_truststore_type: str = _text("Type of ssl.truststore.location: PEM or PKCS12.", "JKS", _store_type_complaint)
    ssl_truststore_location: str | None = _text(
        f"File with the trusted issuers of client certificates. {_RELOADED} Unset: the system's."
    )
    ssl_truststore_password: str | None = _secret("Password of ssl.truststore.location of type PKCS12.")
    ssl_truststore_certificates: str | None = _secret("The trusted issuers as PEM, instead of a file.")
    ssl_client_auth: str = setting(
        Kind.STRING,
        NONE,
        choices=(REQUIRED, REQUESTED, NONE),
        dynamic=True,
        per_broker=True,
        doc="Whether clients need a certificate (required), may send one (requested), or are not asked (none). A "
        "client without one is User:ANONYMOUS. A SASL_SSL listener uses its own setting only.",
    )
    ssl_enabled_protocols: tuple[str, ...] = setting(
        Kind.LIST,
        VERSIONS,
        dynamic=True,
        per_broker=True,
        validator=_versions_complaint,
        doc="Enabled versions of TLS: TLSv1.2, TLSv1.3.",
    )
    ssl_cipher_suites: tuple[str, ...] = setting(
        Kind.LIST,
        (),
        dynamic=True,
        per_broker=True,
        doc="Enabled ciphers, the preferred one first, by their standard or OpenSSL names. Empty: OpenSSL's "
        "strong ones. List all ciphers of TLS 1.3, or none, which disables TLS 1.3.",
    )
    ssl_principal_mapping_rules: str = setting(
        Kind.STRING,
        "DEFAULT",
        doc="Rules that map the name in a client's certificate to a user; the first match applies. DEFAULT is the "
        "whole name, CN=alice,OU=x; RULE:pattern/replacement/ a part of it, and with L or U appended in lower "
        "or upper case.",
    )
    connection_handshake_timeout_ms: int = setting(
        Kind.INT, 10000, least=1, doc="Close connections without a completed TLS handshake after this time."
    )
    max_connection_handshakes: int = setting(
        Kind.INT,
        500,
        unit="connections",
        least=1,
        doc="Maximum number of TLS handshakes in progress on a processor. Above it the oldest is closed.",
    )
