"""Certificates for tests: an authority, the certificates it issues, and their file formats."""

import ipaddress
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from cryptography.hazmat.primitives.serialization import (
    BestAvailableEncryption,
    Encoding,
    NoEncryption,
    PrivateFormat,
    pkcs12,
)
from cryptography.x509.oid import NameOID


class Issued:
    """A certificate with its key."""

    def __init__(self, key: Any, certificate: x509.Certificate, issuer: "Authority | None") -> None:
        self.key = key
        self.certificate = certificate
        self.issuer = issuer

    @property
    def key_pem(self) -> str:
        """The private key, in PKCS#8."""
        return self.key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()).decode()

    def encrypted_key_pem(self, password: str) -> str:
        """Return the private key in PKCS#8, encrypted."""
        encryption = BestAvailableEncryption(password.encode())
        return self.key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, encryption).decode()

    @property
    def pem(self) -> str:
        """The certificate."""
        return self.certificate.public_bytes(Encoding.PEM).decode()

    @property
    def serial(self) -> int:
        """The number that distinguishes it from others of its issuer."""
        return self.certificate.serial_number

    def write(self, directory: Path, name: str) -> Path:
        """Write key and certificate into one file, as a keystore of type PEM is."""
        path = directory / f"{name}.pem"
        partial = directory / f"{name}.pem.partial"
        partial.write_text(self.key_pem + self.pem)
        return partial.replace(path)

    def pkcs12(self, password: str | None) -> bytes:
        """Return a keystore of type PKCS12."""
        others = None if self.issuer is None else [self.issuer.certificate]
        encryption = NoEncryption() if password is None else BestAvailableEncryption(password.encode())
        return pkcs12.serialize_key_and_certificates(b"own", self.key, self.certificate, others, encryption)


class Authority(Issued):
    """An issuer with a self-signed certificate."""

    def __init__(self, name: str = "Test CA") -> None:
        key = ec.generate_private_key(ec.SECP256R1())
        subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
        super().__init__(key, _signed(subject, key, subject, key, days=(-1, 3650), is_authority=True), None)

    @property
    def subject(self) -> x509.Name:
        """Its name."""
        return self.certificate.subject

    def issue(
        self,
        subject: x509.Name | str = "localhost",
        *,
        days: tuple[float, float] = (-1, 365),
        key: Any = None,
    ) -> Issued:
        """Return a certificate for 127.0.0.1 and localhost, valid between so many days from now."""
        name = subject
        if isinstance(name, str):
            name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
        own = key or ec.generate_private_key(ec.SECP256R1())
        return Issued(own, _signed(name, own, self.subject, self.key, days=days), self)

    def pkcs12_truststore(self, password: str) -> bytes:
        """Return a truststore of type PKCS12, as keytool makes it."""
        trusted = [pkcs12.PKCS12Certificate(self.certificate, b"ca")]
        return pkcs12.serialize_java_truststore(trusted, BestAvailableEncryption(password.encode()))


def rsa_key() -> Any:
    """Return a key of the kind that most certificates have."""
    return rsa.generate_private_key(65537, 2048)


def _signed(
    subject: x509.Name,
    own: Any,
    issuer: x509.Name,
    signer: Any,
    *,
    days: tuple[float, float],
    is_authority: bool = False,
) -> x509.Certificate:
    now = datetime.now(UTC)
    names = [x509.DNSName("localhost"), x509.IPAddress(ipaddress.ip_address("127.0.0.1"))]
    builder = (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(own.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now + timedelta(days=days[0]))
        .not_valid_after(now + timedelta(days=days[1]))
        .add_extension(x509.BasicConstraints(ca=is_authority, path_length=None), critical=True)
    )
    if not is_authority:
        builder = builder.add_extension(x509.SubjectAlternativeName(names), critical=False)
    return builder.sign(signer, hashes.SHA256())
