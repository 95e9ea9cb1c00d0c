"""The TLS context of a listener, created from its settings and stores.

Runs in processors, which create one for each TLS listener and a new one when certificates are replaced; and wherever
settings are validated: a context that can be created can be served. OpenSSL reads keys from files only, so they are
written to a file in memory.
"""

from __future__ import annotations

import os
import ssl
from dataclasses import dataclass
from typing import Protocol, cast

from rotunda.broker.config.settings.tls import NONE, REQUIRED
from rotunda.broker.errors import ConfigError
from rotunda.broker.security.tls import ciphers
from rotunda.broker.security.tls.certificate import names, not_after
from rotunda.broker.security.tls.listener_tls import ListenerTls
from rotunda.broker.security.tls.principal_mapping import PrincipalMapping
from rotunda.broker.security.tls.stores import KeyMaterial, read_keystore, read_truststore

_VERSIONS = {"TLSv1.2": ssl.TLSVersion.TLSv1_2, "TLSv1.3": ssl.TLSVersion.TLSv1_3}
_PEM_END = b"\n"


@dataclass(frozen=True, slots=True)
class ServerTls:
    """The TLS parameters of a listener's handshakes.

    ``not_after_s``: expiration of its certificate, in seconds since 1970; ``names``: hosts and addresses that it
    covers.
    """

    settings: ListenerTls
    context: ssl.SSLContext
    mapping: PrincipalMapping
    not_after_s: int
    names: frozenset[str]


class Asked(Protocol):
    """A connection that stores the server name requested by its client (SNI)."""

    asked_name: str


def make(settings: ListenerTls) -> ServerTls:
    """Return the TLS parameters of a listener. Raises ConfigError with listener, setting, cause and remedy."""
    try:
        return _make(settings)
    except ConfigError as error:
        raise ConfigError(f"listener {settings.listener}: {error}") from None


def _make(settings: ListenerTls) -> ServerTls:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.options |= ssl.OP_NO_RENEGOTIATION | ssl.OP_NO_COMPRESSION
    # The kernel's TLS, where Python, OpenSSL and the kernel have it (`tls_kernel_transport`).
    context.options |= getattr(ssl, "OP_ENABLE_KTLS", 0)
    _set_versions(context, settings)
    material = read_keystore(settings.keystore)
    load_key(context, material)
    if settings.client_auth != NONE:
        context.verify_mode = ssl.CERT_REQUIRED if settings.client_auth == REQUIRED else ssl.CERT_OPTIONAL
        # As in Java, any certificate in the truststore is trusted, not only a self-signed one.
        context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN
        _load_trusted(context, settings)
    try:
        mapping = PrincipalMapping(settings.mapping_rules)
    except ValueError as error:
        raise ConfigError(f"ssl.principal.mapping.rules: {error}") from None
    context.sni_callback = _note_asked_name
    certificate = ssl.PEM_cert_to_DER_cert(material.chain[0].decode())
    return ServerTls(settings, context, mapping, not_after(certificate), names(certificate))


def _note_asked_name(connection: ssl.SSLObject, name: str | None, _context: ssl.SSLContext) -> None:
    cast("Asked", connection).asked_name = (name or "").lower()


def _set_versions(context: ssl.SSLContext, settings: ListenerTls) -> None:
    versions = set(settings.versions)
    newer, others = ciphers.split(settings.ciphers)
    if newer and set(newer) != set(ciphers.OF_TLS_1_3):
        raise ConfigError(
            f"ssl.cipher.suites: of those of TLS 1.3 name all, {', '.join(ciphers.OF_TLS_1_3)}, or none, which turns "
            "TLS 1.3 off; OpenSSL's interface in Python does not choose among them"
        )
    for name in others:
        try:
            context.set_ciphers(name)
        except ssl.SSLError:
            raise ConfigError(f"ssl.cipher.suites: {name} is not a TLS 1.2 cipher of OpenSSL") from None
    if settings.ciphers:
        versions &= {*(["TLSv1.3"] if newer else []), *(["TLSv1.2"] if others else [])}
        if not versions:
            raise ConfigError("ssl.cipher.suites has no cipher of a version that ssl.enabled.protocols names")
    if others:
        context.set_ciphers(":".join(others))
    context.minimum_version, context.maximum_version = _VERSIONS[min(versions)], _VERSIONS[max(versions)]


def load_key(context: ssl.SSLContext, material: KeyMaterial) -> None:
    """Load these certificates and their key into a context. Raises ConfigError."""
    file = os.memfd_create("keystore", os.MFD_CLOEXEC)
    try:
        os.write(file, _PEM_END.join((material.key, *material.chain)) + _PEM_END)
        # A password is always passed: without one OpenSSL would prompt for it at the terminal.
        context.load_cert_chain(f"/proc/self/fd/{file}", password=material.password or "")
    except ssl.SSLError as error:
        if error.reason == "KEY_VALUES_MISMATCH":
            raise ConfigError(
                "ssl.keystore: the certificate is not for the private key; the first certificate of the chain has to "
                "be the broker's own"
            ) from None
        if material.password is not None:
            raise ConfigError(
                f"ssl.keystore: the key cannot be loaded, ssl.key.password may be wrong: {error}"
            ) from None
        raise ConfigError(f"ssl.keystore: key and certificate cannot be loaded: {error}") from None
    finally:
        os.close(file)


def _load_trusted(context: ssl.SSLContext, settings: ListenerTls) -> None:
    trusted = read_truststore(settings.truststore)
    if trusted is None:
        context.load_default_certs(ssl.Purpose.CLIENT_AUTH)
        return
    try:
        context.load_verify_locations(cadata=_PEM_END.join(trusted).decode())
    except ssl.SSLError as error:
        raise ConfigError(f"ssl.truststore: the certificates cannot be loaded: {error}") from None
