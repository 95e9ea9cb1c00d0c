"""A certificate authority for development: its key and certificate, and the certificates that it signs, as PEM files.

Used by the command line only. A directory (0700) holds `ca.key`, `ca.pem`, and for the server and each client one file
(0600) with its private key and its certificates, in the format of Kafka's PEM key stores, OpenSSL and Go. Each file is
written atomically and none is ever replaced: after a kill the next call completes the files.
"""

from __future__ import annotations

import datetime
import ipaddress
import os
import re
import socket
import stat
import tempfile
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path

import psutil
from cryptography import x509
from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from rotunda.broker.errors import RotundaError, UsageError

CA_KEY, CA_CERTIFICATE, SERVER = "ca.key", "ca.pem", "server.pem"

#: The longest validity of a server certificate that clients of some vendors accept.
SERVER_DAYS = 825
CA_DAYS = 3650

_PRIVATE, _PUBLIC, _DIRECTORY = 0o600, 0o644, 0o700
_WRITABLE_BY_OTHERS = stat.S_IWGRP | stat.S_IWOTH
_ORGANISATION = "Rotunda development"
#: Tolerance for clients with slow clocks.
_BACKDATED = datetime.timedelta(hours=1)
_HOST_NAME = re.compile(r"(?:\*\.)?[a-z0-9_](?:[a-z0-9_-]{0,62}\.?)*")
_CLIENT_NAME = re.compile(r"[A-Za-z0-9._-]{1,64}")
_LONGEST_HOST_NAME, _LONGEST_COMMON_NAME = 253, 64
_AlternativeName = x509.DNSName | x509.IPAddress


def host_names(added: Iterable[str] = ()) -> list[str]:
    """Return the names and addresses by which clients reach this machine: localhost, its own, and those added.

    Raises UsageError for an added one that is neither a host name nor an address.
    """
    named = [_checked_host(each) for each in added]
    own = [socket.gethostname(), socket.getfqdn()]
    addresses = [
        each.address
        for found in psutil.net_if_addrs().values()
        for each in found
        # Link-local addresses are useless without the name of the interface, which a certificate cannot hold.
        if each.family in (socket.AF_INET, socket.AF_INET6) and "%" not in each.address
    ]
    usable = [each.lower() for each in own if _HOST_NAME.fullmatch(each.lower())]
    return list(dict.fromkeys(["localhost", "127.0.0.1", "::1", *named, *usable, *sorted(addresses)]))


def client_file(name: str) -> str:
    """Return the name of a client's file with its key and certificates. Raises UsageError for an invalid name."""
    if not _CLIENT_NAME.fullmatch(name):
        raise UsageError(f"--client {name}: a name has letters, digits, dots, hyphens and underscores, at most 64")
    return f"client-{name}.pem"


class DevelopmentCa:
    """The authority in a directory, which it creates. Raises RotundaError for existing files that do not match."""

    def __init__(self, directory: Path, now: datetime.datetime) -> None:
        self.directory = directory
        self._from = now.replace(microsecond=0) - _BACKDATED
        _make_directory(directory)
        key = directory / CA_KEY
        if not key.exists():
            if (directory / CA_CERTIFICATE).exists():
                raise RotundaError(f"{directory} has {CA_CERTIFICATE} and no {CA_KEY} to sign with; name another --dir")
            _write(key, _private_pem(ec.generate_private_key(ec.SECP256R1())), _PRIVATE)
        self._key = _read_key(key)
        self.certificate = directory / CA_CERTIFICATE
        if not self.certificate.exists():
            _write(self.certificate, self._own_certificate().public_bytes(serialization.Encoding.PEM), _PUBLIC)
        self._certificate = _read_certificate(self.certificate)
        if self._certificate.public_key() != self._key.public_key():
            raise RotundaError(f"{self.certificate} is not of {key}: they are of two authorities")
        if self._certificate.not_valid_after_utc <= now:
            raise RotundaError(
                f"{self.certificate} has expired; name another --dir and give clients its new {CA_CERTIFICATE}"
            )

    def issue_server(self, hosts: Iterable[str]) -> Path:
        """Create the server's file for these names and addresses, and return its path. Raises FileExistsError."""
        listed = list(hosts)
        name = next((each for each in listed[3:] if len(each) <= _LONGEST_COMMON_NAME), "localhost")
        return self._issue(SERVER, name, ExtendedKeyUsageOID.SERVER_AUTH, [_alternative(each) for each in listed])

    def issue_client(self, name: str) -> Path:
        """Create a client's file, with the subject `CN=name,...`, and return its path. Raises FileExistsError."""
        return self._issue(client_file(name), name, ExtendedKeyUsageOID.CLIENT_AUTH, [])

    def _own_certificate(self) -> x509.Certificate:
        subject = _subject(f"{_ORGANISATION} CA")
        builder = _builder(subject, subject, self._key.public_key(), self._from, CA_DAYS)
        usage = _key_usage(signs_certificates=True)
        for extension, critical in (
            (x509.BasicConstraints(ca=True, path_length=0), True),
            (usage, True),
            (x509.SubjectKeyIdentifier.from_public_key(self._key.public_key()), False),
        ):
            builder = builder.add_extension(extension, critical)
        return builder.sign(self._key, hashes.SHA256())

    def _issue(
        self, file: str, name: str, purpose: x509.ObjectIdentifier, alternatives: list[_AlternativeName]
    ) -> Path:
        key = ec.generate_private_key(ec.SECP256R1())
        builder = _builder(_subject(name), self._certificate.subject, key.public_key(), self._from, SERVER_DAYS)
        # A certificate must not be valid longer than its authority.
        authority_ends = self._certificate.not_valid_after_utc
        if self._from + datetime.timedelta(days=SERVER_DAYS) > authority_ends:
            builder = _builder(
                _subject(name), self._certificate.subject, key.public_key(), self._from, 0, authority_ends
            )
        for extension, critical in (
            (x509.BasicConstraints(ca=False, path_length=None), True),
            (_key_usage(signs_certificates=False), True),
            (x509.ExtendedKeyUsage([purpose]), False),
            (x509.SubjectKeyIdentifier.from_public_key(key.public_key()), False),
            (x509.AuthorityKeyIdentifier.from_issuer_public_key(self._key.public_key()), False),
        ):
            builder = builder.add_extension(extension, critical)
        if alternatives:
            builder = builder.add_extension(x509.SubjectAlternativeName(alternatives), critical=False)
        certificate = builder.sign(self._key, hashes.SHA256())
        chain = [each.public_bytes(serialization.Encoding.PEM) for each in (certificate, self._certificate)]
        path = self.directory / file
        _write(path, _private_pem(key) + b"".join(chain), _PRIVATE)
        return path


def _builder(
    subject: x509.Name,
    issuer: x509.Name,
    key: ec.EllipticCurvePublicKey,
    begin: datetime.datetime,
    days: int,
    end: datetime.datetime | None = None,
) -> x509.CertificateBuilder:
    # Both ends are part of the validity, so it is one second shorter than full days.
    last = end or begin + datetime.timedelta(days=days, seconds=-1)
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key)
        .serial_number(x509.random_serial_number())
        .not_valid_before(begin)
        .not_valid_after(last)
    )


def _subject(common_name: str) -> x509.Name:
    return x509.Name(
        [
            x509.NameAttribute(NameOID.ORGANIZATION_NAME, _ORGANISATION),
            x509.NameAttribute(NameOID.COMMON_NAME, common_name),
        ]
    )


def _key_usage(*, signs_certificates: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=not signs_certificates,
        key_cert_sign=signs_certificates,
        crl_sign=signs_certificates,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        encipher_only=False,
        decipher_only=False,
    )


def _checked_host(text: str) -> str:
    """Return a host name in the form of certificates: in lower case, non-ASCII letters encoded."""
    with suppress(ValueError):
        return str(ipaddress.ip_address(text.strip("[]")))
    try:
        name = text.rstrip(".").encode("idna").decode().lower() if not text.isascii() else text.rstrip(".").lower()
    except UnicodeError:
        name = ""
    if len(name) > _LONGEST_HOST_NAME or not _HOST_NAME.fullmatch(name):
        raise UsageError(f"--host {text}: expected a host name or an address, without a port")
    return name


def _alternative(host: str) -> _AlternativeName:
    try:
        return x509.IPAddress(ipaddress.ip_address(host))
    except ValueError:
        return x509.DNSName(host)


def _private_pem(key: ec.EllipticCurvePrivateKey) -> bytes:
    return key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )


def _read_key(path: Path) -> ec.EllipticCurvePrivateKey:
    try:
        key = serialization.load_pem_private_key(path.read_bytes(), password=None)
    except (OSError, ValueError, TypeError, UnsupportedAlgorithm) as failure:
        raise RotundaError(f"{path} cannot be read as a private key: {failure}") from failure
    if not isinstance(key, ec.EllipticCurvePrivateKey):
        raise RotundaError(f"{path} is a key of another kind than `rotunda tls init` makes; name another --dir")
    return key


def _read_certificate(path: Path) -> x509.Certificate:
    try:
        return x509.load_pem_x509_certificate(path.read_bytes())
    except (OSError, ValueError) as failure:
        raise RotundaError(f"{path} cannot be read as a certificate: {failure}") from failure


def _make_directory(path: Path) -> None:
    """Create the directory for this user alone; an existing one keeps its mode: key files are private in any case."""
    try:
        path.mkdir(mode=_DIRECTORY, parents=True, exist_ok=True)
        found = path.stat()
    except OSError as failure:
        raise RotundaError(f"directory {path} cannot be made: {failure.strerror}") from failure
    if found.st_uid != os.getuid() or found.st_mode & _WRITABLE_BY_OTHERS:
        raise RotundaError(
            f"directory {path} can be written by other users: keys are not kept there; chmod 700 it, or name another"
        )


def _write(path: Path, content: bytes, mode: int) -> None:
    """Write a new file, atomically and durably. Raises FileExistsError: an existing file is unchanged."""
    fd, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")  # 0600, independent of the umask
    other = Path(name)
    try:
        with open(fd, "wb") as file:
            file.write(content)
            file.flush()
            os.fchmod(fd, mode)
            os.fsync(fd)
        path.hardlink_to(other)
    finally:
        other.unlink()
