"""Reads keystores and truststores, from a file or from text in the settings, and converts them to PEM.

Runs in processors, and wherever settings are validated. A store of any format is converted to PEM in memory, and
nothing of it is ever written to a disk. Java's own format is detected and rejected, with the command that converts it.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import NamedTuple

from rotunda.broker.errors import ConfigError
from rotunda.broker.security.tls.listener_tls import Store

_JKS_MAGICS = (b"\xfe\xed\xfe\xed", b"\xce\xce\xce\xce")
_CERTIFICATE = re.compile(rb"-----BEGIN CERTIFICATE-----.+?-----END CERTIFICATE-----", re.DOTALL)
_KEY = re.compile(rb"-----BEGIN ([A-Z ]*)PRIVATE KEY-----.+?-----END \1PRIVATE KEY-----", re.DOTALL)
_ENCRYPTED = (b"ENCRYPTED PRIVATE KEY", b"Proc-Type: 4,ENCRYPTED")
#: Size limit of a store; a larger file is invalid.
_MOST_BYTES = 16 * 1024 * 1024


class KeyMaterial(NamedTuple):
    """A private key and the certificates for it, the broker's own first, as PEM. ``password`` decrypts the key."""

    chain: tuple[bytes, ...]
    key: bytes
    password: str | None


def read_keystore(store: Store) -> KeyMaterial:
    """Return a listener's key and certificates. Raises ConfigError with setting, cause and remedy."""
    inline = store.certificates or store.key
    if store.location is None and not inline:
        raise ConfigError(
            "ssl.keystore.location is missing: a listener of TLS needs a private key and a certificate; set "
            "ssl.keystore.type=PEM and ssl.keystore.location to a file with both"
        )
    if inline:
        if store.kind != "PEM":
            raise ConfigError(f"ssl.keystore.key is of type PEM, and ssl.keystore.type is {store.kind}: set it to PEM")
        if not (store.certificates and store.key):
            missing = "key" if store.certificates else "certificate.chain"
            raise ConfigError(f"ssl.keystore.{missing} is missing: key and certificate.chain are set together")
        pem = _encoded(store.key), _encoded(store.certificates)
        return _from_pem(store, *pem, where=("ssl.keystore.key", "ssl.keystore.certificate.chain"))
    content = _content(store)
    if store.kind == "PEM":
        return _from_pem(store, content, content, where=(f"ssl.keystore.location={store.location}",) * 2)
    return _from_pkcs12(store, content)


def read_truststore(store: Store) -> tuple[bytes, ...] | None:
    """Return the certificates that a listener trusts, as PEM; None if none are configured. Raises ConfigError."""
    if store.certificates:
        if store.kind != "PEM":
            raise ConfigError(
                f"ssl.truststore.certificates are of type PEM, and ssl.truststore.type is {store.kind}: set it to PEM"
            )
        return _certificates(_encoded(store.certificates), "ssl.truststore.certificates")
    if store.location is None:
        return None
    content = _content(store)
    where = f"ssl.truststore.location={store.location}"
    if store.kind == "PEM":
        return _certificates(content, where)
    _, own, others = _opened(store, content)
    found = tuple(each for each in (own, *others) if each is not None)
    if not found:
        raise ConfigError(f"{where} has no certificate")
    return found


def _content(store: Store) -> bytes:
    """Return the content of a store's file, after checking that its type matches."""
    where = f"{store.setting}.location={store.location}"
    assert store.location is not None  # noqa: S101 - the callers have looked
    try:
        with Path(store.location).open("rb") as file:
            content = file.read(_MOST_BYTES)
    except OSError as error:
        raise ConfigError(
            f"{where} cannot be read: {error.strerror}; the broker's user has to be able to read it"
        ) from None
    if content.startswith(_JKS_MAGICS):
        raise ConfigError(
            f"{where} is of Java's own format JKS, which is not read. Convert it: keytool -importkeystore -srckeystore "
            f"{store.location} -destkeystore {Path(store.location).stem}.p12 -deststoretype pkcs12"
            f"; then set {store.setting}.type=PKCS12 and the new location"
        )
    is_pem = b"-----BEGIN " in content
    if is_pem != (store.kind == "PEM"):
        format_found, wanted = ("PEM", "PEM") if is_pem else ("not PEM", "PKCS12")
        raise ConfigError(
            f"{where} is {format_found}, and {store.setting}.type is {store.kind}: set {store.setting}.type={wanted}"
        )
    if store.kind == "PEM" and store.password is not None:
        raise ConfigError(
            f"{store.setting}.password is not for type PEM: only ssl.key.password is, which decrypts the private key"
        )
    return content


def _from_pem(store: Store, key: bytes, chain: bytes, where: tuple[str, str]) -> KeyMaterial:
    found = _KEY.search(key)
    if found is None:
        raise ConfigError(f"{where[0]} has no private key: it begins with -----BEGIN PRIVATE KEY-----")
    if any(mark in found[0] for mark in _ENCRYPTED) and store.key_password is None:
        raise ConfigError(f"the private key of {where[0]} is encrypted: set ssl.key.password")
    return KeyMaterial(_certificates(chain, where[1]), found[0], store.key_password)


def _from_pkcs12(store: Store, content: bytes) -> KeyMaterial:
    key, own, others = _opened(store, content)
    if key is None or own is None:
        missing = "private key" if key is None else "certificate for its key"
        raise ConfigError(f"ssl.keystore.location={store.location} has no {missing}")
    return KeyMaterial((own, *others), key, None)


def _opened(store: Store, content: bytes) -> tuple[bytes | None, bytes | None, tuple[bytes, ...]]:
    """Return the content of a PKCS#12 file, as PEM: its key, the certificate for it, and the others."""
    # Loaded here, because only such a file needs the memory for it.
    from cryptography.hazmat.primitives.serialization import (  # noqa: PLC0415
        Encoding,
        NoEncryption,
        PrivateFormat,
        pkcs12,
    )

    password = None if store.password is None else store.password.encode()
    try:
        found = pkcs12.load_pkcs12(content, password)
    except ValueError:
        complaint = "is missing" if password is None else "does not open it, or it is not a PKCS#12 file"
        raise ConfigError(f"{store.setting}.location={store.location}: {store.setting}.password {complaint}") from None
    key = found.key
    return (
        None if key is None else key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()),
        None if found.cert is None else found.cert.certificate.public_bytes(Encoding.PEM),
        tuple(each.certificate.public_bytes(Encoding.PEM) for each in found.additional_certs),
    )


def _certificates(content: bytes, where: str) -> tuple[bytes, ...]:
    found = tuple(_CERTIFICATE.findall(content))
    if not found:
        raise ConfigError(f"{where} has no certificate: one begins with -----BEGIN CERTIFICATE-----")
    return found


def _encoded(text: str) -> bytes:
    """Return PEM from a setting; line ends may be written as in properties files."""
    return text.replace("\\n", "\n").encode()
