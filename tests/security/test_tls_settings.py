"""Settings of TLS listeners: stores of each form, versions, ciphers; and the errors for unusable ones."""

import ssl
from pathlib import Path

import pytest

from rotunda.broker.config.broker_config import load
from rotunda.broker.errors import ConfigError
from rotunda.broker.security.tls.checks import check_tls
from rotunda.broker.security.tls.ciphers import OF_TLS_1_3, openssl_name
from rotunda.broker.security.tls.contexts import ServerTls, make
from rotunda.broker.security.tls.listener_tls import tls_of
from tests.support.certificates import Authority, rsa_key

AUTHORITY = Authority()
OWN = AUTHORITY.issue()
OTHER = AUTHORITY.issue("other")


def made(sets: dict[str, str], listener: str = "SSL") -> ServerTls:
    """Return the settings that the first listener serves with."""
    config = load(None, {"listeners": f"{listener}://127.0.0.1:0", **sets}, {})
    check_tls(config)
    settings = tls_of(config, config.bound_listeners[0])
    assert settings is not None
    return make(settings)


def inline(**more: str) -> dict[str, str]:
    names = {"ssl.keystore.type": "PEM", "ssl.keystore.key": OWN.key_pem, "ssl.keystore.certificate.chain": OWN.pem}
    return {**names, **{name.replace("_", "."): value for name, value in more.items()}}


@pytest.fixture
def pem(tmp_path: Path) -> str:
    return str(OWN.write(tmp_path, "own"))


def test_h07_each_form_of_a_keystore_is_read(tmp_path: Path, pem: str) -> None:
    with_key = OWN.encrypted_key_pem("sesame") + OWN.pem
    (tmp_path / "encrypted.pem").write_text(with_key)
    (tmp_path / "own.p12").write_bytes(OWN.pkcs12("sesame"))
    p12 = str(tmp_path / "own.p12")
    forms: list[dict[str, str]] = [
        inline(),
        inline(ssl_keystore_key=OWN.encrypted_key_pem("sesame"), **{"ssl.key.password": "sesame"}),
        inline(ssl_keystore_key=OWN.key_pem.replace("\n", "\\n")),
        {"ssl.keystore.type": "PEM", "ssl.keystore.location": pem},
        {
            "ssl.keystore.type": "PEM",
            "ssl.keystore.location": str(tmp_path / "encrypted.pem"),
            "ssl.key.password": "sesame",
        },
        {"ssl.keystore.type": "PKCS12", "ssl.keystore.location": p12, "ssl.keystore.password": "sesame"},
        {"ssl.keystore.location": p12, "ssl.keystore.password": "sesame"},
    ]
    ends = {made(form).not_after_s for form in forms}
    assert ends == {int(OWN.certificate.not_valid_after_utc.timestamp())}


def test_h07_each_form_of_a_truststore_is_read(tmp_path: Path) -> None:
    (tmp_path / "ca.pem").write_text("subject=/CN=x\n" + AUTHORITY.pem + OTHER.pem)
    (tmp_path / "ca.p12").write_bytes(AUTHORITY.pkcs12_truststore("sesame"))
    forms: list[tuple[dict[str, str], int]] = [
        ({"ssl.truststore.type": "PEM", "ssl.truststore.location": str(tmp_path / "ca.pem")}, 2),
        ({"ssl.truststore.type": "PEM", "ssl.truststore.certificates": AUTHORITY.pem}, 1),
        ({"ssl.truststore.location": str(tmp_path / "ca.p12"), "ssl.truststore.password": "sesame"}, 1),
    ]
    for form, count in forms:
        context = made(inline(ssl_client_auth="required") | form).context
        assert context.verify_mode == ssl.CERT_REQUIRED
        assert context.cert_store_stats()["x509"] == count


def test_h05_a_listener_has_settings_of_its_own(pem: str) -> None:
    sets = {
        "listener.security.protocol.map": "INNER:SSL,OUTER:SSL",
        "listener.name.inner.ssl.keystore.location": pem,
        "listener.name.inner.ssl.keystore.type": "PEM",
        "listener.name.inner.ssl.client.auth": "required",
        "listener.name.inner.ssl.endpoint.identification.algorithm": "",
    }
    assert made(sets, "INNER").context.verify_mode == ssl.CERT_REQUIRED
    with pytest.raises(ConfigError, match=r"^listener OUTER: ssl.keystore.location is missing"):
        made({name: text for name, text in sets.items() if ".inner." not in name}, "OUTER")


def test_without_certificates_of_clients_an_open_listener_needs_the_explicit_flag() -> None:
    """`users.md` 23: clients that must show a certificate are authenticated, those that may are not."""
    for client_auth in ("none", "requested"):
        with pytest.raises(ConfigError, match=r"ssl.client.auth=required"):
            load(None, {"listeners": "SSL://0.0.0.0:1", "ssl.client.auth": client_auth}, {})
    advertised = {"advertised.listeners": "SSL://localhost:1"}
    config = load(None, {"listeners": "SSL://0.0.0.0:1", "ssl.client.auth": "required", **advertised}, {})
    assert config.bound_listeners[0].host == "0.0.0.0"  # noqa: S104 - what was asked for
    config = load(None, {"listeners": "SSL://0.0.0.0:1", **advertised}, {})
    assert config.bound_listeners[0].host == "127.0.0.1"
    with pytest.raises(ConfigError, match=r"ssl.client.auth=required"):
        load(
            None,
            {"listeners": "SSL://0.0.0.0:1", "ssl.client.auth": "required"}
            | {"advertised.listeners": "SSL://127.0.0.1:1"},
            {},
        ).with_dynamic(
            {
                "listener.name.ssl.ssl.client.auth": "none",
                "listeners": "SSL://0.0.0.0:1",
                "advertised.listeners": "SSL://example.org:1",
            }
        )


@pytest.mark.parametrize(
    ("sets", "says"),
    [
        ({}, "ssl.keystore.location is missing"),
        ({"ssl.keystore.type": "PEM", "ssl.keystore.location": "/nowhere"}, "/nowhere cannot be read: No such file"),
        ({"ssl.keystore.location": "{jks}"}, "keytool -importkeystore"),
        ({"ssl.keystore.location": "{pem}"}, "is PEM, and ssl.keystore.type is JKS: set ssl.keystore.type=PEM"),
        ({"ssl.keystore.type": "PEM", "ssl.keystore.location": "{p12}"}, "set ssl.keystore.type=PKCS12"),
        ({"ssl.keystore.location": "{p12}"}, "ssl.keystore.password is missing"),
        ({"ssl.keystore.location": "{p12}", "ssl.keystore.password": "open"}, "ssl.keystore.password does not open it"),
        ({"ssl.keystore.type": "PEM", "ssl.keystore.location": "{ca}"}, "has no private key"),
        (
            {"ssl.keystore.type": "PEM", "ssl.keystore.location": "{pem}", "ssl.keystore.password": "x"},
            "not for type PEM",
        ),
        ({"ssl.keystore.key": OWN.key_pem}, "of type PEM, and ssl.keystore.type is JKS"),
        ({"ssl.keystore.type": "PEM", "ssl.keystore.key": OWN.key_pem}, "ssl.keystore.certificate.chain is missing"),
        (inline(ssl_keystore_certificate_chain=OTHER.pem), "the certificate is not for the private key"),
        (inline(ssl_keystore_certificate_chain="x"), "has no certificate"),
        (inline(ssl_keystore_key=OWN.encrypted_key_pem("sesame")), "is encrypted: set ssl.key.password"),
        (
            inline(ssl_keystore_key=OWN.encrypted_key_pem("sesame"), **{"ssl.key.password": "open"}),
            "ssl.key.password may be wrong",
        ),
        (inline(ssl_cipher_suites="TLS_NO"), "TLS_NO is not a TLS 1.2 cipher"),
        (inline(ssl_cipher_suites="TLS_AES_128_GCM_SHA256"), "of those of TLS 1.3 name all"),
        (
            inline(ssl_cipher_suites="ECDHE-RSA-AES128-GCM-SHA256", ssl_enabled_protocols="TLSv1.3"),
            "no cipher of a version",
        ),
        (inline(ssl_enabled_protocols="TLSv1.1"), "TLSv1.1 is not served"),
        (inline(ssl_enabled_protocols=""), "must name TLSv1.2"),
        (inline(ssl_keystore_type="BKS"), "must be one of JKS, PKCS12, PEM"),
        (inline(ssl_client_auth="maybe"), "must be one of: required, requested, none"),
        (inline(ssl_principal_mapping_rules="RULE"), "ssl.principal.mapping.rules: invalid rule"),
        (inline(ssl_client_auth="required", ssl_truststore_location="/nowhere"), "/nowhere cannot be read"),
        (inline(ssl_engine_factory_class="x.Y"), "Java classes cannot be loaded"),
    ],
)
def test_h07_what_cannot_be_served_is_named_with_its_remedy(
    sets: dict[str, str], says: str, tmp_path: Path, pem: str
) -> None:
    (tmp_path / "own.jks").write_bytes(b"\xfe\xed\xfe\xed\x00\x00\x00\x02")
    (tmp_path / "own.p12").write_bytes(OWN.pkcs12("sesame"))
    (tmp_path / "ca.pem").write_text(AUTHORITY.pem)
    places = {"jks": tmp_path / "own.jks", "p12": tmp_path / "own.p12", "ca": tmp_path / "ca.pem", "pem": pem}
    filled = {name: text.format(**places) if name.endswith("location") else text for name, text in sets.items()}
    with pytest.raises(ConfigError) as rejected:
        made(filled)
    assert says in str(rejected.value)
    assert "sesame" not in str(rejected.value)
    assert "PRIVATE KEY-----\n" not in str(rejected.value)


def test_ciphers_have_the_names_of_the_standard_and_of_openssl() -> None:
    """Each that OpenSSL has for RSA and ECDSA is found by its name in the standard."""
    known = {
        "TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256": "ECDHE-RSA-AES128-GCM-SHA256",
        "TLS_ECDHE_ECDSA_WITH_AES_256_CBC_SHA384": "ECDHE-ECDSA-AES256-SHA384",
        "TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305_SHA256": "ECDHE-RSA-CHACHA20-POLY1305",
        "TLS_DHE_RSA_WITH_AES_256_CBC_SHA256": "DHE-RSA-AES256-SHA256",
        "TLS_ECDHE_RSA_WITH_AES_128_CBC_SHA": "ECDHE-RSA-AES128-SHA",
        "TLS_RSA_WITH_AES_128_GCM_SHA256": "AES128-GCM-SHA256",
        "ECDHE-RSA-AES128-GCM-SHA256": "ECDHE-RSA-AES128-GCM-SHA256",
    }
    assert {name: openssl_name(name) for name in known} == known
    server = made(inline(ssl_cipher_suites=",".join([*known, *OF_TLS_1_3])))
    offered = {each["name"] for each in server.context.get_ciphers()}
    assert offered == {*known.values(), *OF_TLS_1_3}
    assert server.context.maximum_version == ssl.TLSVersion.TLSv1_3
    without = made(inline(ssl_cipher_suites="TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256"))
    assert without.context.maximum_version == ssl.TLSVersion.TLSv1_2
    only = made(inline(ssl_cipher_suites=",".join(OF_TLS_1_3)))
    assert only.context.minimum_version == ssl.TLSVersion.TLSv1_3


def test_an_rsa_key_in_its_older_form_is_read() -> None:
    from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat  # noqa: PLC0415

    issued = AUTHORITY.issue(key=rsa_key())
    older = issued.key.private_bytes(Encoding.PEM, PrivateFormat.TraditionalOpenSSL, NoEncryption()).decode()
    assert older.startswith("-----BEGIN RSA PRIVATE KEY-----")
    assert made(inline(ssl_keystore_key=older, ssl_keystore_certificate_chain=issued.pem)).not_after_s
