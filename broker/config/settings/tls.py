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

_RELOADED = "It is read again by `rotunda reload`, and when an ssl setting of the broker is changed while it runs."


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
    """Certificates and rules of listeners that speak TLS. Only ever part of a BrokerConfig."""

    ssl_keystore_type: str = setting(
        _text(
            "ssl.keystore.type",
            "What ssl.keystore.location is: PEM, or PKCS12. With JKS a file of PKCS#12 is read too, as Java does; "
            "Java's own format is not, and keytool turns it into PKCS12.",
            "JKS",
        )
    )
    ssl_keystore_location: str | None = setting(
        _text(
            "ssl.keystore.location",
            "The file with the private key and the certificate of a listener, behind which stand those of its "
            f"issuers. {_RELOADED}",
        )
    )
    ssl_keystore_password: str | None = setting(
        _secret("ssl.keystore.password", "Opens ssl.keystore.location of type PKCS12.")
    )
    ssl_keystore_key: str | None = setting(
        _secret("ssl.keystore.key", "The private key itself, as PEM, in place of a file; with type PEM.")
    )
    ssl_keystore_certificate_chain: str | None = setting(
        _secret("ssl.keystore.certificate.chain", "The certificate itself and those of its issuers, as PEM.")
    )
    ssl_key_password: str | None = setting(_secret("ssl.key.password", "Decrypts the private key, if it is encrypted."))
    ssl_truststore_type: str = setting(
        _text("ssl.truststore.type", "What ssl.truststore.location is: PEM, or PKCS12.", "JKS")
    )
    ssl_truststore_location: str | None = setting(
        _text(
            "ssl.truststore.location",
            f"The file with the certificates that those of clients are issued by. {_RELOADED} Without one the system's "
            "are trusted.",
        )
    )
    ssl_truststore_password: str | None = setting(
        _secret("ssl.truststore.password", "Opens ssl.truststore.location of type PKCS12.")
    )
    ssl_truststore_certificates: str | None = setting(
        _secret("ssl.truststore.certificates", "Those certificates themselves, as PEM, in place of a file.")
    )
    ssl_client_auth: str = setting(
        Key(
            name="ssl.client.auth",
            kind=Kind.STRING,
            default=NONE,
            choices=(REQUIRED, REQUESTED, NONE),
            dynamic=True,
            per_broker=True,
            doc="Whether clients show a certificate: they must, they may, or they are not asked. Without one a client "
            "is User:ANONYMOUS. A listener of SASL_SSL asks for one only by a setting of its own.",
        )
    )
    ssl_enabled_protocols: tuple[str, ...] = setting(
        Key(
            name="ssl.enabled.protocols",
            kind=Kind.LIST,
            default=VERSIONS,
            dynamic=True,
            per_broker=True,
            doc="The versions of TLS that clients may speak: TLSv1.2, TLSv1.3.",
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
            doc="The ciphers that are used, the preferred one first, by their names in the standard or in OpenSSL. "
            "Empty: OpenSSL's strong ones. Those of TLS 1.3 stand in the list all or not at all, and then 1.3 is off.",
        )
    )
    ssl_principal_mapping_rules: str = setting(
        Key(
            name="ssl.principal.mapping.rules",
            kind=Kind.STRING,
            default="DEFAULT",
            doc="How the name in a client's certificate becomes a user: rules, of which the first that fits holds. "
            "DEFAULT is the whole name, CN=alice,OU=x; RULE:pattern/replacement/ is a part of it, and in lower or "
            "upper case with L or U behind it.",
        )
    )
    connection_handshake_timeout_ms: int = setting(
        Key(
            name="connection.handshake.timeout.ms",
            kind=Kind.INT,
            default=10000,
            unit="ms",
            least=1,
            doc="A new connection whose TLS handshake is not done by then is closed.",
        )
    )
    max_connection_handshakes: int = setting(
        Key(
            name="max.connection.handshakes",
            kind=Kind.INT,
            default=500,
            unit="connections",
            least=1,
            doc="TLS handshakes that each processor has under way. Beyond it the one that began first is closed.",
        )
    )
