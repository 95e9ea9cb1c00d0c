"""Mistakes of clients' users leave one line each in the broker's log, which names cause and remedy."""

import socket
import ssl
from collections.abc import Callable, Iterator
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka.admin import AdminClient

from rotunda.broker.security.development_ca import DevelopmentCa
from tests.support.broker_process import BrokerProcess
from tests.support.command_line import command
from tests.support.deadline import deadline_s, wait_until

PLAIN_LISTENER, GOOD, EXPIRED, OTHER_NAME, SASL = range(5)
JAAS = 'org.apache.kafka.common.security.plain.PlainLoginModule required user_alice="alice-secret";'


@pytest.fixture(scope="module")
def authorities(tmp_path_factory: pytest.TempPathFactory) -> dict[int, DevelopmentCa]:
    """Return CAs by listener: of a good certificate, of one that has expired, of one with another name."""
    directory, now = tmp_path_factory.mktemp("authorities"), datetime.now(UTC)
    made = {
        GOOD: DevelopmentCa(directory / "good", now),
        EXPIRED: DevelopmentCa(directory / "expired", now - timedelta(days=900)),
        OTHER_NAME: DevelopmentCa(directory / "other", now),
    }
    for listener, authority in made.items():
        authority.issue_server(["other.example"] if listener == OTHER_NAME else ["localhost", "127.0.0.1"])
    return made


@pytest.fixture(scope="module")
def broker(authorities: dict[int, DevelopmentCa], tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    """Run a broker with a listener for each mistake."""
    names = ("PLAINTEXT", "SSL", "EXPIRED", "OTHER", "SASL_SSL")
    settings: dict[str, Any] = {
        "num.network.threads": 1,
        "num.io.threads": 1,
        "listeners": ",".join(f"{name}://127.0.0.1:0" for name in names),
        "listener.security.protocol.map": "EXPIRED:SSL,OTHER:SSL",
        "ssl.keystore.type": "PEM",
        "ssl.keystore.location": authorities[GOOD].directory / "server.pem",
        "listener.name.expired.ssl.keystore.location": authorities[EXPIRED].directory / "server.pem",
        "listener.name.other.ssl.keystore.location": authorities[OTHER_NAME].directory / "server.pem",
        "listener.name.other.ssl.client.auth": "required",
        "listener.name.other.ssl.truststore.type": "PEM",
        "listener.name.other.ssl.truststore.location": authorities[GOOD].certificate,
        "sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-512",
        "listener.name.sasl_ssl.plain.sasl.jaas.config": JAAS,
    }
    running = BrokerProcess(tmp_path_factory.mktemp("broker"), settings).start()
    yield running
    running.stop()


def address(broker: BrokerProcess, listener: int) -> str:
    return str(broker.status()["bootstrap"].split(",")[listener])


def one_line(broker: BrokerProcess, act: Callable[[], Any], *words: str) -> str:
    """Do something, and return the one line of the log that has all these words."""
    before = broker.log_bytes()
    act()

    def found() -> list[str]:
        return [line for line in broker.log_since(before) if all(word in line for word in words)]

    wait_until(found, f"a line with {words}")
    [line] = found()
    return line


def client(broker: BrokerProcess, listener: int, **settings: str) -> None:
    """Request the cluster once with librdkafka; it fails."""
    named = {name.replace("_", "."): value for name, value in settings.items()}
    failures: list[Any] = []
    admin = AdminClient(
        {
            "bootstrap.servers": address(broker, listener),
            # One attempt: it would repeat for as long as it is polled.
            "reconnect.backoff.ms": 60_000,
            "reconnect.backoff.max.ms": 60_000,
            "log_level": 0,
            "error_cb": failures.append,
            **named,
        }
    )
    wait_until(lambda: admin.poll(0.05) >= 0 and failures, "a failure")


def shake_hands(broker: BrokerProcess, listener: int, authority: DevelopmentCa) -> None:
    """Shake hands as a client that trusts an authority; it rejects the certificate."""
    host, _, port = address(broker, listener).partition(":")
    context = ssl.create_default_context(cafile=str(authority.certificate))
    with suppress(OSError), socket.create_connection((host, int(port)), timeout=deadline_s()) as connection:
        context.wrap_socket(connection, server_hostname="localhost")


def doctor_says(broker: BrokerProcess, listener: int, wrong: str) -> str:
    """Return the output of `rotunda doctor` for a port with another protocol than it was given."""
    done = command("doctor", "--bootstrap", address(broker, listener), "--property", f"security.protocol={wrong}")
    assert done.returncode == 1
    return done.stdout


def test_plain_text_on_a_port_of_tls(broker: BrokerProcess) -> None:
    """From outside, `rotunda doctor` finds out the port's protocol, but not a missing client certificate."""

    def act() -> None:
        client(broker, GOOD)

    assert "security.protocol=SSL" in one_line(broker, act, "a Kafka request without TLS")
    assert "set security.protocol=SSL in the client" in doctor_says(broker, GOOD, "PLAINTEXT")
    says = "set security.protocol=SASL_SSL, sasl.mechanism to one of PLAIN, SCRAM-SHA-512, and a user in"
    assert says in doctor_says(broker, SASL, "PLAINTEXT")
    says = "set security.protocol=SSL, or SASL_SSL if it has users, in the client"
    assert says in doctor_says(broker, OTHER_NAME, "PLAINTEXT")


def test_a_certificate_that_has_expired(broker: BrokerProcess, authorities: dict[int, DevelopmentCa]) -> None:
    def act() -> None:
        shake_hands(broker, EXPIRED, authorities[EXPIRED])

    assert "`rotunda reload`" in one_line(broker, act, "the client rejects the broker's certificate (expired)")


def test_a_certificate_for_another_name(broker: BrokerProcess, authorities: dict[int, DevelopmentCa]) -> None:
    def act() -> None:
        shake_hands(broker, OTHER_NAME, authorities[OTHER_NAME])

    line = one_line(broker, act, "the client rejects the broker's certificate")
    assert "the host name used by the client" in line


def test_a_user_without_a_client_id(
    broker: BrokerProcess, authorities: dict[int, DevelopmentCa], tmp_path: Path
) -> None:
    """From outside, `rotunda doctor` names the mechanisms; the log has the unexpected request."""
    file = tmp_path / "client.properties"
    file.write_text(f"security.protocol=SSL\nssl.ca.location={authorities[GOOD].certificate}\n")

    def act() -> None:
        done = command("doctor", "--bootstrap", address(broker, SASL), "--command-config", str(file))
        assert "set security.protocol=SASL_SSL" in done.stdout
        assert "PLAIN, SCRAM-SHA-512" in done.stdout

    assert "METADATA" in one_line(broker, act, "before the client has authenticated")
