"""SASL with real clients: successful and failed logins, their errors and users, and how sessions end."""

import json
import random
import struct
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import KafkaException, Producer
from confluent_kafka.admin import AdminClient, ConfigResource, ResourceType

from rotunda.broker.protocol import codec
from rotunda.broker.protocol.api_keys import ApiKey
from tests.support.broker_process import BrokerProcess
from tests.support.broker_settings import set_configs
from tests.support.deadline import deadline_s, wait_until
from tests.support.sasl_broker import SCRAM_MECHANISMS, set_password
from tests.support.sasl_wire import SaslWire
from tests.support.scram_client import ScramClient

PLAIN_LINE = "org.apache.kafka.common.security.plain.PlainLoginModule required"
#: Additional memory of processors and handlers after 4,000 failed exchanges: 4 KB of each.
MOST_GROWTH_BYTES = 16 << 20


@contextmanager
def running(directory: Path) -> Iterator[BrokerProcess]:
    """Run a broker with listeners of SASL, and with users."""
    settings = {
        "listeners": "PLAINTEXT://127.0.0.1:0,SASL_PLAINTEXT://127.0.0.1:0,SHORT://127.0.0.1:0",
        "listener.security.protocol.map": "SHORT:SASL_PLAINTEXT",
        "sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-256,SCRAM-SHA-512",
        "listener.name.short.sasl.enabled.mechanisms": "SCRAM-SHA-256",
        "listener.name.short.scram-sha-256.connections.max.reauth.ms": 1200,
        "listener.name.sasl_plaintext.plain.sasl.jaas.config": f'{PLAIN_LINE} user_bob="bob=s;secret";',
        "connection.failed.authentication.delay.ms": 50,
        "request.log.roll.ms": 200,
        # No process waits for clients that disconnect at once.
        "socket.listen.backlog.size": 2000,
    }
    one = BrokerProcess(directory, settings).start()
    for mechanism in SCRAM_MECHANISMS:
        set_password(admin_of(one), "alice", "alice's secret", mechanism)
    yield one
    one.stop()


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    with running(tmp_path_factory.mktemp("sasl")) as one:
        yield one


@pytest.fixture
def hostile(tmp_path: Path) -> Iterator[BrokerProcess]:
    """Yield a broker with few log lines about single clients: too many of them fail."""
    with running(tmp_path) as one:
        yield one


def admin_of(broker: BrokerProcess) -> AdminClient:
    return AdminClient({"bootstrap.servers": broker.bootstrap})


def settings(broker: BrokerProcess, mechanism: str, user: str, password: str, listener: int = 1) -> dict[str, Any]:
    return {
        "bootstrap.servers": f"127.0.0.1:{broker.ports()[listener]}",
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": mechanism,
        "sasl.username": user,
        "sasl.password": password,
    }


def produced(client: dict[str, Any], topic: str, count: int = 10) -> None:
    failures: list[Any] = []
    producer = Producer(client)
    for number in range(count):
        producer.produce(topic, str(number).encode(), on_delivery=lambda error, _: failures.append(error))
    assert producer.flush(deadline_s()) == 0
    assert failures == [None] * count


def test_h06_the_request_log_has_the_user(broker: BrokerProcess) -> None:
    produced(settings(broker, "SCRAM-SHA-256", "alice", "alice's secret"), "logged")

    def principals() -> bool:
        rows = json.loads(broker.command("requests", "--api", "PRODUCE", "--topic", "logged", "--json").stdout or "[]")
        return {row.get("principal") for row in rows} == {"User:alice"}

    wait_until(principals, "the row of the produce")


@pytest.mark.parametrize(
    ("mechanism", "user", "cause"),
    [
        ("SCRAM-SHA-256", "alice", "as 'alice' failed: wrong password"),
        ("SCRAM-SHA-512", "carol", "as 'carol' failed: unknown user: rotunda user add makes one"),
        ("PLAIN", "bob", "as 'bob' failed: wrong password"),
        ("PLAIN", "nobody", "as 'nobody' failed: unknown user"),
    ],
)
def test_h09_the_reason_of_a_failed_authentication_is_in_the_log_alone(
    broker: BrokerProcess, mechanism: str, user: str, cause: str
) -> None:
    errors: list[str] = []
    client = {**settings(broker, mechanism, user, "planted-password"), "error_cb": lambda e: errors.append(str(e))}
    # It tries on as long as it lives, also when the machine has left it no time to try before.
    admin = AdminClient(client)
    with pytest.raises(KafkaException):
        admin.list_topics(timeout=2)
    assert errors == [] or "SASL authentication error: Authentication failed" in errors[0]
    wait_until(lambda: f"with {mechanism} {cause}" in broker.log_text(), "the line in the log")
    assert "planted-password" not in broker.log_text()


def test_h08_pipelined_authentication_is_handled_in_order(broker: BrokerProcess) -> None:
    """ApiVersions, handshake, token and a request in one piece."""
    with SaslWire(broker.ports()[1]) as wire:
        asked = [
            (ApiKey.API_VERSIONS, 3, {"client_software_name": "wire", "client_software_version": "1"}),
            (ApiKey.SASL_HANDSHAKE, 1, {"mechanism": "PLAIN"}),
            (ApiKey.SASL_AUTHENTICATE, 2, {"auth_bytes": b"\0bob\0bob=s;secret"}),
            (ApiKey.METADATA, 1, {"topics": []}),
        ]
        wire.socket.sendall(b"".join(codec.encode_request(key, version, 1, "me", f) for key, version, f in asked))
        answers = [wire.answer(key, version) for key, version, _ in asked]
        assert [int(each.error_code) for each in answers[:3]] == [0, 0, 0]
        assert answers[3].topics == ()


def test_h09_a_frame_that_is_too_long_closes_the_connection_at_its_header(broker: BrokerProcess) -> None:
    with SaslWire(broker.ports()[1]) as wire:
        wire.socket.sendall(struct.pack(">ihhi", 524289, 18, 0, 1))
        with pytest.raises(ConnectionError):
            wire.take(1)
        wait_until(lambda: "a frame of 524289 bytes, and 524288 are accepted" in broker.log_text(), "the log line")


@pytest.mark.parametrize(
    ("sent", "says"),
    [
        (b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + bytes(9), "failed: a TLS client"),
        (b"GET / HTTP/1.1\r\nHost: x\r\n\r\n", "failed: an HTTP request"),
        (
            codec.encode_request(ApiKey.METADATA, 1, 1, "x", {"topics": []}),
            "give it the listener's security.prot",
        ),
    ],
)
def test_h11_clients_of_another_protocol_are_logged(broker: BrokerProcess, sent: bytes, says: str) -> None:
    with SaslWire(broker.ports()[1]) as wire:
        wire.socket.sendall(sent)
        with pytest.raises(ConnectionError):
            wire.take(1)
    wait_until(lambda: says in broker.log_text(), "the line in the log")


def test_users_and_mechanisms_of_a_listener_change_while_it_runs(tmp_path: Path) -> None:
    """For new connections; and the new password is in no log and no response."""
    sets = {
        "listeners": "PLAINTEXT://127.0.0.1:0,SASL_PLAINTEXT://127.0.0.1:0",
        "sasl.enabled.mechanisms": "SCRAM-SHA-256",
    }
    one = BrokerProcess(tmp_path, sets).start()
    name = "listener.name.sasl_plaintext.plain.sasl.jaas.config"
    changes = {name: f'{PLAIN_LINE} user_dora="planted-secret";', "sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-256"}
    try:
        admin = admin_of(one)
        [broker_id] = admin.list_topics(timeout=deadline_s()).brokers
        set_configs(admin, ResourceType.BROKER, str(broker_id), changes)

        def gets_in() -> bool:
            with SaslWire(one.ports()[1]) as wire:
                if int(wire.request(ApiKey.SASL_HANDSHAKE, 1, mechanism="PLAIN").error_code):
                    return False
                done = wire.request(ApiKey.SASL_AUTHENTICATE, 1, auth_bytes=b"\0dora\0planted-secret")
                return not int(done.error_code)

        wait_until(gets_in, "the new mechanism")
        described = admin.describe_configs([ConfigResource(ConfigResource.Type.BROKER, str(broker_id))])
        [found] = [future.result(deadline_s()) for future in described.values()]
        assert found[name].value is None
        assert "planted-secret" not in one.log_text() + one.command("config", "list").stdout
    finally:
        one.stop()


def test_c16_reauthentication_without_a_lifetime_is_error_34(broker: BrokerProcess) -> None:
    with SaslWire(broker.ports()[1]) as wire:
        assert int(wire.log_in("alice", "alice's secret").error_code) == 0
        assert int(wire.request(ApiKey.SASL_HANDSHAKE, 1, mechanism="PLAIN").error_code) == 34
        tokens = wire.request(ApiKey.DESCRIBE_DELEGATION_TOKEN, 3, owners=None)
        assert (int(tokens.error_code), tokens.tokens) == (61, ()), "DELEGATION_TOKEN_AUTH_DISABLED"
        assert wire.request(ApiKey.METADATA, 1, topics=[]).topics == ()


def test_b25_librdkafka_continues_over_many_sessions(broker: BrokerProcess) -> None:
    """It authenticates again in time, and no record is lost."""
    client = settings(broker, "SCRAM-SHA-256", "alice", "alice's secret", listener=2)
    failures: list[Any] = []
    producer = Producer(client)
    sent = 0

    def is_begun_again() -> bool:
        nonlocal sent
        producer.produce("sessions", b"x", on_delivery=lambda error, _: failures.append(error))
        sent += 1
        producer.flush(10)
        return counted(broker, "reauthentications_succeeded") >= 2

    wait_until(is_begun_again, "two sessions begun again")
    assert producer.flush(deadline_s()) == 0
    assert failures == [None] * sent


def counted(broker: BrokerProcess, name: str) -> int:
    text = broker.command("metrics").stdout
    lines = [line.split() for line in text.splitlines() if line.startswith(f"rotunda_processor_{name}")]
    return sum(int(float(line[-1])) for line in lines)


def test_credentials_are_in_no_file_that_others_may_read(tmp_path: Path) -> None:
    one = BrokerProcess(tmp_path, {}, ephemeral=False).start()
    try:
        set_password(admin_of(one), "alice", "secret")
        found = [path for path in tmp_path.rglob("*") if path.is_file() and b"stored_key=" in path.read_bytes()]
        assert found
        assert [path for path in found if path.stat().st_mode & 0o077] == []
    finally:
        one.stop()


def test_mutated_frames_before_and_during_authentication_let_nobody_in(
    hostile: BrokerProcess, request: pytest.FixtureRequest
) -> None:
    """8,000 exchanges, each with a changed byte or length somewhere and a name of its own; memory stays as it is.

    A client with the password can log in.
    """
    seed = request.config.getoption("randomly_seed", default=0)
    chance = random.Random(f"frames {seed}")
    print("seed", seed)
    before = {row["pid"] for row in hostile.processes("processor")}
    address = hostile.ports()[1]
    send_mutated(address, 4000, chance)
    flat = hostile.memory_bytes("processor", "handler")
    send_mutated(address, 4000, chance)
    assert {row["pid"] for row in hostile.processes("processor")} == before
    assert "error on connection" not in hostile.log_text()
    with SaslWire(address) as wire:
        assert int(wire.log_in("alice", "alice's secret").error_code) == 0
    assert hostile.memory_bytes("processor", "handler") - flat < MOST_GROWTH_BYTES


def send_mutated(address: int, count: int, chance: random.Random) -> None:
    """Begin ``count`` exchanges without waiting for any."""
    versions = codec.encode_request(
        ApiKey.API_VERSIONS, 3, 77, "me", {"client_software_name": "wire", "client_software_version": "1"}
    )
    metadata = codec.encode_request(ApiKey.METADATA, 1, 77, "me", {"topics": []})
    for number in range(count):
        scram = ScramClient("SCRAM-SHA-256", f"name-{number}", "wrong").first()
        token = chance.choice([scram, b"\0name-%d\0wrong" % number])
        asked = [
            (ApiKey.SASL_HANDSHAKE, chance.randrange(2), {"mechanism": chance.choice(["PLAIN", "SCRAM-SHA-256"])}),
            (ApiKey.SASL_AUTHENTICATE, chance.randrange(3), {"auth_bytes": token}),
        ]
        within = [codec.encode_request(key, version, 77, "me", fields) for key, version, fields in asked]
        sent = bytearray(b"".join([versions, *within, metadata]))
        for _ in range(chance.randrange(1, 4)):
            sent[chance.randrange(len(sent))] = chance.randrange(256)
        with SaslWire(address) as wire:
            wire.socket.sendall(bytes(sent[: chance.randrange(1, len(sent) + 1)]))
