"""Parsing of certificates: names as Java writes them (compared with the output of JDK 17), and ends."""

import ssl
from datetime import UTC, datetime, timedelta

import pytest
from cryptography import x509
from cryptography.hazmat.primitives.serialization import Encoding
from cryptography.x509.name import _ASN1Type
from cryptography.x509.oid import NameOID

from rotunda.broker.security.tls.certificate import covers, names, not_after, subject
from tests.support.certificates import Authority

AUTHORITY = Authority()


def der_of(name: x509.Name) -> bytes:
    return AUTHORITY.issue(name).certificate.public_bytes(Encoding.DER)


def named(*attributes: tuple[x509.ObjectIdentifier, str]) -> x509.Name:
    return x509.Name([x509.NameAttribute(oid, text) for oid, text in attributes])


@pytest.mark.parametrize(
    ("name", "written"),
    [
        (named((NameOID.COMMON_NAME, "alice")), "CN=alice"),
        (
            named(
                (NameOID.COUNTRY_NAME, "DE"),
                (NameOID.STATE_OR_PROVINCE_NAME, "Berlin"),
                (NameOID.LOCALITY_NAME, "Mitte"),
                (NameOID.STREET_ADDRESS, "Way 1"),
                (NameOID.ORGANIZATION_NAME, "Example, Inc."),
                (NameOID.ORGANIZATIONAL_UNIT_NAME, "x"),
                (NameOID.COMMON_NAME, "alice"),
            ),
            "CN=alice,OU=x,O=Example\\, Inc.,STREET=Way 1,L=Mitte,ST=Berlin,C=DE",
        ),
        (named((NameOID.DOMAIN_COMPONENT, "org"), (NameOID.USER_ID, "7")), "UID=7,DC=org"),
        (named((NameOID.COMMON_NAME, ' #a+b"c\\d<e>f;g=h ')), 'CN=\\ \\#a\\+b\\"c\\\\d\\<e\\>f\\;g\\=h\\ '),
        (named((NameOID.COMMON_NAME, "Zoë 漢")), "CN=Zoë 漢"),
        (
            x509.Name(
                [
                    x509.NameAttribute(NameOID.COMMON_NAME, "bob"),
                    x509.NameAttribute(NameOID.EMAIL_ADDRESS, "b@x.org", _ASN1Type.IA5String),
                ]
            ),
            "1.2.840.113549.1.9.1=#16076240782e6f7267,CN=bob",
        ),
        (
            x509.Name(
                [
                    x509.RelativeDistinguishedName(
                        [
                            x509.NameAttribute(NameOID.COMMON_NAME, "a"),
                            x509.NameAttribute(NameOID.ORGANIZATIONAL_UNIT_NAME, "b"),
                        ]
                    )
                ]
            ),
            "CN=a+OU=b",
        ),
        (x509.Name([]), ""),
    ],
)
def test_h06_names_are_written_as_java_writes_them(name: x509.Name, written: str) -> None:
    assert subject(der_of(name)) == written


@pytest.mark.parametrize("days", [1, 365, 40_000])
def test_the_end_is_read_in_both_of_its_forms(days: int) -> None:
    """Years from 2050 on are written with four digits."""
    issued = AUTHORITY.issue(days=(-1, days))
    expected = datetime.now(UTC) + timedelta(days=days)
    assert abs(not_after(ssl.PEM_cert_to_DER_cert(issued.pem)) - expected.timestamp()) < 600


def test_c18_a_certificate_is_for_its_alternative_names_and_no_others() -> None:
    assert names(der_of(named((NameOID.COMMON_NAME, "alice")))) == {"localhost", "127.0.0.1"}
    assert names(AUTHORITY.certificate.public_bytes(Encoding.DER)) == frozenset()
    some = {"kafka.example", "*.kafka.example", "2001:db8::17"}
    for name in ("kafka.example", "one.kafka.example", "2001:db8::17"):
        assert covers(some, name)
    for name in ("", "example", "one.two.kafka.example", "kafka.example.", "localhost"):
        assert not covers(some, name)


def test_bytes_that_are_cut_raise_and_nothing_else() -> None:
    der = der_of(named((NameOID.COMMON_NAME, "alice")))
    for end in range(200):
        with pytest.raises((ValueError, IndexError)):
            subject(der[:end])
