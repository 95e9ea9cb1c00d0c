"""Records on the page with authentication: a viewer sees the topics that its user may read, and no others."""

import base64
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient

from tests.support.broker_process import PAGE, BrokerProcess
from tests.support.command_line import command
from tests.support.deadline import deadline_s, wait_until
from tests.support.sasl_broker import set_password
from tests.support.status_page import ask

pytestmark = pytest.mark.slow

PLAIN = "org.apache.kafka.common.security.plain.PlainLoginModule required"
USERS = " ".join(f'user_{name}="{name}-secret"' for name in ("admin", "reader", "other"))
SCRAM_USERS = ("scram-reader", "scram-other")


def start(directory: Path, protocol: str, **settings: object) -> BrokerProcess:
    """Start a broker with users and an authorizer, with a listener of that protocol and one for anonymous clients."""
    every = {
        **PAGE, "num.network.threads": 1, "num.io.threads": 1, "super.users": "User:admin",
        "listeners": f"PLAINTEXT://127.0.0.1:0,{protocol}://127.0.0.1:0",
        "sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-256",
        "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
        f"listener.name.{protocol.lower()}.plain.sasl.jaas.config": f"{PLAIN} {USERS};",
        **settings,
    }  # fmt: skip
    return BrokerProcess(directory, every).start()


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    """Run a broker with two topics, and users with different rights."""
    running = start(tmp_path_factory.mktemp("rights"), "SASL_PLAINTEXT")
    try:
        fill(running)
        yield running
    finally:
        running.stop()


def fill(running: BrokerProcess) -> None:
    """Write two topics, and give users different rights."""
    admin = {
        "bootstrap.servers": running.status()["bootstrap"].split(",")[1], "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": "PLAIN", "sasl.username": "admin", "sasl.password": "admin-secret",
    }  # fmt: skip
    producer = Producer(admin)
    for topic in ("orders", "public"):
        producer.produce(topic, b"a record")
    assert producer.flush(deadline_s()) == 0
    address = _admin(running)
    for name in SCRAM_USERS:
        set_password(AdminClient(admin), name, f"{name}-secret")
    for user, topic in (("reader", "orders"), ("scram-reader", "orders"), ("ANONYMOUS", "public")):
        right = ("--allow-principal", f"User:{user}", "--operation", "read", "--topic", topic)
        done = command("acl", "add", *address, *right)
        assert done.returncode == 0, done.stderr


def _admin(broker: BrokerProcess) -> tuple[str, ...]:
    address = broker.status()["bootstrap"].split(",")[1]
    return "--bootstrap", address, "--command-config", str(_properties(broker))


def _properties(broker: BrokerProcess) -> Path:
    file = broker.run_dir / "admin.properties"
    jaas = f'{PLAIN} username="admin" password="admin-secret";'
    lines = ("security.protocol=SASL_PLAINTEXT", "sasl.mechanism=PLAIN", f"sasl.jaas.config={jaas}")
    file.write_text("\n".join(lines), encoding="utf-8")
    return file


def look(broker: BrokerProcess, topic: str, user: str = "", password: str = "") -> tuple[int, str, dict[str, str]]:
    """Return status, text and headers of the response to a user."""
    basic = base64.b64encode(f"{user}:{password}".encode()).decode()
    authorization = {"Authorization": f"Basic {basic}"} if user else {}
    code, headers, body = ask(broker, f"/topics/{topic}/records.json", **authorization)
    return code, body.decode(), headers


def test_a_user_sees_the_topics_that_it_may_read(broker: BrokerProcess) -> None:
    """READ by the broker's own authorizer, for a client with the name and password of the viewer."""
    wait_until(lambda: look(broker, "orders", "reader", "reader-secret")[0] == 200, "the user's right")
    assert "a record" in look(broker, "orders", "reader", "reader-secret")[1]
    assert "a record" in look(broker, "orders", "admin", "admin-secret")[1]
    code, text, _ = look(broker, "orders", "other", "other-secret")
    assert (code, text) == (403, "user other needs READ on topic orders\n")
    assert look(broker, "public", "reader", "reader-secret")[0] == 403, "another user's right"


def test_a_user_with_a_scram_password_has_the_same_rights(broker: BrokerProcess) -> None:
    wait_until(lambda: look(broker, "orders", "scram-reader", "scram-reader-secret")[0] == 200, "the user's right")
    assert "a record" in look(broker, "orders", "scram-reader", "scram-reader-secret")[1]
    assert look(broker, "orders", "scram-other", "scram-other-secret")[:2] == (
        403,
        "user scram-other needs READ on topic orders\n",
    )
    assert look(broker, "orders", "scram-reader", "wrong-secret")[0] == 401
    assert command("user", "delete", "scram-reader", *_admin(broker)).returncode == 0
    wait_until(lambda: look(broker, "orders", "scram-reader", "scram-reader-secret")[0] == 401, "the user's end")


def test_a_viewer_without_a_user_is_anonymous_and_can_log_in(broker: BrokerProcess) -> None:
    code, text, headers = look(broker, "orders")
    assert (code, text) == (401, "user ANONYMOUS needs READ on topic orders\n")
    assert headers["www-authenticate"].startswith("Basic")
    wait_until(lambda: look(broker, "public")[0] == 200, "the right of ANONYMOUS")


def test_a_wrong_password_opens_nothing(broker: BrokerProcess) -> None:
    for user, password in (("admin", "wrong-secret"), ("nobody", "admin-secret")):
        code, text, _ = look(broker, "public", user, password)
        assert (code, text) == (401, "log in: wrong name or password\n")
    assert "wrong-secret" not in broker.log_text()


def test_over_tls_and_with_the_token_of_the_page(tmp_path: Path) -> None:
    """The page's token is not the password of a user."""
    assert command("tls", "init", "--dir", str(tmp_path / "tls")).returncode == 0
    token = "the-token-of-the-page"  # noqa: S105
    broker = start(
        tmp_path,
        "SASL_SSL",
        **{"status.token": token, "ssl.keystore.type": "PEM", "ssl.keystore.location": tmp_path / "tls" / "server.pem"},
    )
    try:
        assert look(broker, "nowhere", "me", token)[0] == 401
        assert look(broker, "nowhere", "admin", "admin-secret")[:2] == (
            404,
            "unknown topic nowhere; see `rotunda topic list`\n",
        )
    finally:
        broker.stop()


def test_records_are_off_by_default_for_other_machines_and_can_be_switched_off(tmp_path: Path) -> None:
    for directory, settings in (
        ("far", {"status.host": "0.0.0.0", "insecure.listen": "true"}),  # noqa: S104 - what is tested
        ("off", {"status.records.enable": "false"}),
    ):
        broker = BrokerProcess(tmp_path / directory, {**PAGE, **settings}).start()
        try:
            code, _, body = ask(broker, "/topics/orders/records.json")
            assert (code, b"status.records.enable" in body) == (403, True)
            _, _, body = ask(broker, "/view/topics")
            assert b'"shows_records":false' in body
        finally:
            broker.stop()
