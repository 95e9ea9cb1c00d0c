"""The settings of TLS: certificates, trust stores, versions and ciphers. Declarations only.

Each may be set for one listener, with the prefix ``listener.name.<listener>.`` (`H05`). `broker.security.tls` checks
whether the files can be used.
"""

from __future__ import annotations

from dataclasses import dataclass

from rotunda.broker.config.keys import Key, Kind, setting

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


def _text(name: str, doc: str, default: str | None = None) -> Key:
    return Key(
        name=name,
        kind=Kind.STRING,
        default=default,
        nullable=default is None,
        dynamic=True,
        per_broker=True,
        doc=doc,
        validator=_store_type_complaint if name.endswith("store.type") else None,
    )


def _secret(name: str, doc: str) -> Key:
    return Key(
        name=name,
        kind=Kind.PASSWORD,
        default=None,
        nullable=True,
        dynamic=True,
        per_broker=True,
        sensitive=True,
        doc=doc,
    )


@dataclass(frozen=True, kw_only=True, init=False, repr=False, eq=False)
class TlsSettings:
    """Certificates and rules of listeners that speak TLS. A part of BrokerConfig."""

    ssl_keystore_type: str = setting(
        _text(
            "ssl.keystore.type",
            "Type of ssl.keystore.location: PEM or PKCS12. With JKS a PKCS#12 file is read too, as in Java; Java's "
            "own format is not supported, convert it with keytool.",
            "JKS",
        )
    )
    ssl_keystore_location: str | None = setting(
        _text(
            "ssl.keystore.location",
            f"File with the private key and the certificate of a listener, followed by its issuers'. {_RELOADED}",
        )
    )
    ssl_keystore_password: str | None = setting(
        _secret("ssl.keystore.password", "Password of ssl.keystore.location of type PKCS12.")
    )
    ssl_keystore_key: str | None = setting(
        _secret("ssl.keystore.key", "The private key as PEM, instead of a file; with type PEM.")
    )
    ssl_keystore_certificate_chain: str | None = setting(
        _secret("ssl.keystore.certificate.chain", "The certificate and those of its issuers as PEM, instead of a file.")
    )
    ssl_key_password: str | None = setting(_secret("ssl.key.password", "Password of an encrypted private key."))
    ssl_truststore_type: str = setting(
        _text("ssl.truststore.type", "Type of ssl.truststore.location: PEM or PKCS12.", "JKS")
    )
    ssl_truststore_location: str | None = setting(
        _text(
            "ssl.truststore.location",
            f"File with the trusted issuers of client certificates. {_RELOADED} Unset: the system's.",
        )
    )
    ssl_truststore_password: str | None = setting(
        _secret("ssl.truststore.password", "Password of ssl.truststore.location of type PKCS12.")
    )
    ssl_truststore_certificates: str | None = setting(
        _secret("ssl.truststore.certificates", "The trusted issuers as PEM, instead of a file.")
    )
    ssl_client_auth: str = setting(
        Key(
            name="ssl.client.auth",
            kind=Kind.STRING,
            default=NONE,
            choices=(REQUIRED, REQUESTED, NONE),
            dynamic=True,
            per_broker=True,
            doc="Whether clients need a certificate (required), may send one (requested), or are not asked (none). A "
            "client without one is User:ANONYMOUS. A SASL_SSL listener uses its own setting only.",
        )
    )
    ssl_enabled_protocols: tuple[str, ...] = setting(
        Key(
            name="ssl.enabled.protocols",
            kind=Kind.LIST,
            default=VERSIONS,
            dynamic=True,
            per_broker=True,
            doc="Enabled versions of TLS: TLSv1.2, TLSv1.3.",
            validator=_versions_complaint,
        )
    )
    ssl_cipher_suites: tuple[str, ...] = setting(
        Key(
            name="ssl.cipher.suites",
            kind=Kind.LIST,
            default=(),
            dynamic=True,
            per_broker=True,
            doc="Enabled ciphers, the preferred one first, by their standard or OpenSSL names. Empty: OpenSSL's "
            "strong ones. List all ciphers of TLS 1.3, or none, which disables TLS 1.3.",
        )
    )
    ssl_principal_mapping_rules: str = setting(
        Key(
            name="ssl.principal.mapping.rules",
            kind=Kind.STRING,
            default="DEFAULT",
            doc="Rules that map the name in a client's certificate to a user; the first match applies. DEFAULT is the "
            "whole name, CN=alice,OU=x; RULE:pattern/replacement/ a part of it, and with L or U appended in lower "
            "or upper case.",
        )
    )
    connection_handshake_timeout_ms: int = setting(
        Key(
            name="connection.handshake.timeout.ms",
            kind=Kind.INT,
            default=10000,
            unit="ms",
            least=1,
            doc="Close connections without a completed TLS handshake after this time.",
        )
    )
    max_connection_handshakes: int = setting(
        Key(
            name="max.connection.handshakes",
            kind=Kind.INT,
            default=500,
            unit="connections",
            least=1,
            doc="Maximum number of TLS handshakes in progress on a processor. Above it the oldest is closed.",
        )
    )
