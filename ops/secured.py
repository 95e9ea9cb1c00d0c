"""Listeners with TLS and SASL, of Rotunda and Apache Kafka alike, and the settings of their clients (librdkafka)."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from confluent_kafka.admin import AdminClient, ScramCredentialInfo, ScramMechanism, UserScramCredentialUpsertion

from ops.broker import output_of, rotunda

PLAINTEXT = "PLAINTEXT"
PROTOCOLS = (PLAINTEXT, "SASL_PLAINTEXT", "SSL", "SASL_SSL")
PLAIN, SCRAM = "PLAIN", "SCRAM-SHA-256"
#: The user of both mechanisms; SCRAM's is made by `make_user`.
USER, PASSWORD = "stranger", "strange-password"
DEADLINE_SECONDS = 120.0
_MODULE = "org.apache.kafka.common.security"


def make_certificates(directory: Path) -> None:
    output_of(rotunda("tls", "init", "--dir", str(directory / "tls")))


def authority_of(directory: Path) -> str:
    """Return the file of the certificates that a client trusts."""
    return str(directory / "tls" / "ca.pem")


def settings(directory: Path, ports: Mapping[str, int]) -> dict[str, str]:
    """Return a broker's settings for a listener of each of these protocols."""
    logins = {
        PLAIN: f'{_MODULE}.plain.PlainLoginModule required user_{USER}="{PASSWORD}";',
        SCRAM: f"{_MODULE}.scram.ScramLoginModule required;",
    }
    return {
        "listeners": ",".join(f"{protocol}://127.0.0.1:{port}" for protocol, port in ports.items()),
        "ssl.keystore.type": "PEM",
        "ssl.keystore.location": str(directory / "tls" / "server.pem"),
        "sasl.enabled.mechanisms": f"{PLAIN},{SCRAM}",
        **{
            f"listener.name.{protocol.lower()}.{mechanism.lower()}.sasl.jaas.config": login
            for protocol in ports
            if protocol.startswith("SASL")
            for mechanism, login in logins.items()
        },
    }


def client(directory: Path, protocol: str, port: int) -> dict[str, Any]:
    found: dict[str, Any] = {"bootstrap.servers": f"127.0.0.1:{port}", "security.protocol": protocol}
    if protocol.endswith("SSL"):
        found["ssl.ca.location"] = authority_of(directory)
    if protocol.startswith("SASL"):
        found |= {"sasl.mechanism": SCRAM, "sasl.username": USER, "sasl.password": PASSWORD}
    return found


def make_user(plain: Mapping[str, Any]) -> None:
    """Create the user of SCRAM, through the listener that these client settings name."""
    credential = ScramCredentialInfo(ScramMechanism.SCRAM_SHA_256, 4096)
    admin = AdminClient(dict(plain))  # its requests end with it
    change = UserScramCredentialUpsertion(USER, credential, PASSWORD.encode())
    for future in admin.alter_user_scram_credentials([change]).values():
        future.result(DEADLINE_SECONDS)
