"""The status page by HTTPS, with the broker's certificate, and with the next one once it has been replaced (row 23)."""

import base64
import json
import ssl
from collections.abc import Iterator
from contextlib import closing
from http.client import HTTPSConnection
from pathlib import Path

import pytest
from confluent_kafka.admin import AdminClient

from tests.support.broker_process import PAGE, BrokerProcess
from tests.support.command_line import command
from tests.support.deadline import deadline_s, wait_until
from tests.support.sasl_broker import set_password

pytestmark = pytest.mark.slow

TOKEN = "the-token-of-the-page"  # noqa: S105

PLAIN_USERS = 'org.apache.kafka.common.security.plain.PlainLoginModule required user_bob="bob\'s secret";'


def init(directory: Path) -> Path:
    """Make a CA and a server's certificate; return the directory."""
    done = command("tls", "init", "--json", "--dir", str(directory))
    assert done.returncode == 0, done.stderr
    return directory


@pytest.fixture(scope="module")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the directory with certificates."""
    return init(tmp_path_factory.mktemp("https") / "tls")


@pytest.fixture(scope="module")
def broker(certificates: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    """Run a broker whose page other machines may reach."""
    settings = {
        **PAGE,
        "num.network.threads": 1,
        "num.io.threads": 1,
        "status.host": "0.0.0.0",  # noqa: S104 - what is tested
        "status.ssl.enable": "true",
        "status.token": TOKEN,
        "listeners": "PLAINTEXT://127.0.0.1:0,SASL_PLAINTEXT://127.0.0.1:0",
        "sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-512",
        "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
        "super.users": "User:ANONYMOUS;User:bob",
        "listener.name.sasl_plaintext.plain.sasl.jaas.config": PLAIN_USERS,
        "ssl.keystore.type": "PEM",
        "ssl.keystore.location": certificates / "server.pem",
    }
    running = BrokerProcess(tmp_path_factory.mktemp("broker"), settings).start()
    yield running
    running.stop()


def ask(
    broker: BrokerProcess, authority: Path, path: str, name: str = "localhost", authorization: str = f"Bearer {TOKEN}"
) -> tuple[int, bytes, str]:
    """Return status and body of a response, and the certificate's serial number."""
    port = int(broker.status()["status_url"].rstrip("/").rpartition(":")[2])
    context = ssl.create_default_context(cafile=str(authority / "ca.pem"))
    with closing(HTTPSConnection(name, port, context=context, timeout=deadline_s())) as connection:
        connection.request("GET", path, headers={"Authorization": authorization})
        answer = connection.getresponse()
        shown = connection.sock.getpeercert()["serialNumber"]  # type: ignore[union-attr]
        return answer.status, answer.read(), shown


def test_the_page_is_served_by_https(broker: BrokerProcess, certificates: Path) -> None:
    """Row 23: by the name and by the address."""
    assert broker.status()["status_url"].startswith("https://127.0.0.1:")
    for name in ("localhost", "127.0.0.1"):
        code, body, _ = ask(broker, certificates, "/status.json", name)
        assert code == 200
        assert json.loads(body)["ready"]


def basic(user: str, password: str) -> str:
    return "Basic " + base64.b64encode(f"{user}:{password}".encode()).decode()


def test_users_of_the_listeners_are_let_in(broker: BrokerProcess, certificates: Path) -> None:
    """Row 23: those with SCRAM credentials and those of PLAIN, by the passwords that they have now."""

    def code(user: str, password: str) -> int:
        return ask(broker, certificates, "/status.json", authorization=basic(user, password))[0]

    admin = AdminClient({"bootstrap.servers": broker.bootstrap})

    set_password(admin, "alice", "alice's secret", "SCRAM-SHA-512")
    wait_until(lambda: "'alice'" in broker.log_text(), "alice is stored")
    assert code("alice", "alice's secret") == 401, "she may not describe the cluster"
    right = ("--allow-principal", "User:alice", "--operation", "describe", "--cluster")
    assert broker.command("acl", "add", *right).returncode == 0
    wait_until(lambda: code("alice", "alice's secret") == 200, "alice is known")
    assert code("alice", "alice's secret") == 200, "and remembered"
    assert code("bob", "bob's secret") == 200
    for user, password in (("alice", "bob's secret"), ("bob", "alice's secret"), ("carol", "x"), ("alice", "")):
        assert code(user, password) == 401
    set_password(admin, "alice", "another secret", "SCRAM-SHA-512")
    wait_until(lambda: code("alice", "alice's secret") == 401, "the old password opens nothing")
    assert code("alice", "another secret") == 200
    assert "secret" not in "".join(line for line in broker.log_text().splitlines() if "status page" in line)


def test_a_certificate_that_was_replaced_is_shown_after_a_reload(broker: BrokerProcess, certificates: Path) -> None:
    before = ask(broker, certificates, "/healthz")[2]
    (certificates / "server.pem").unlink()
    init(certificates)
    assert ask(broker, certificates, "/healthz")[2] == before, "nobody has asked for it yet"
    assert broker.command("reload").returncode == 0
    wait_until(lambda: ask(broker, certificates, "/healthz")[2] != before, "the new certificate")
    # An unusable one changes nothing, and is reported.
    now = ask(broker, certificates, "/healthz")[2]
    good = (certificates / "server.pem").read_bytes()
    (certificates / "server.pem").write_bytes(b"nonsense")
    broker.command("reload")
    wait_until(lambda: "cannot" in broker.log_text() or "no certificate" in broker.log_text(), "a line")
    assert ask(broker, certificates, "/healthz")[2] == now
    (certificates / "server.pem").write_bytes(good)


def test_https_without_a_certificate_does_not_start() -> None:
    done = command("check-config", "--set", "status.ssl.enable=true")
    assert done.returncode == 2
    assert "status page" in done.stderr
    assert "ssl.keystore.location is missing" in done.stderr
