"""SASL with real clients: logins that succeed and fail, their errors and users."""

import json
import struct
from collections.abc import Iterator
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

PLAIN_LINE = "org.apache.kafka.common.security.plain.PlainLoginModule required"


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    """Run a broker with a listener of SASL, and with users."""
    settings = {
        "listeners": "PLAINTEXT://127.0.0.1:0,SASL_PLAINTEXT://127.0.0.1:0",
        "sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-256,SCRAM-SHA-512",
        "listener.name.sasl_plaintext.plain.sasl.jaas.config": f'{PLAIN_LINE} user_bob="bob=s;secret";',
        "connection.failed.authentication.delay.ms": 50,
        "request.log.roll.ms": 200,
    }
    one = BrokerProcess(tmp_path_factory.mktemp("sasl"), settings).start()
    for mechanism in SCRAM_MECHANISMS:
        set_password(admin_of(one), "alice", "alice's secret", mechanism)
    yield one
    one.stop()


def admin_of(broker: BrokerProcess) -> AdminClient:
    return AdminClient({"bootstrap.servers": broker.bootstrap})


def settings(broker: BrokerProcess, mechanism: str, user: str, password: str) -> dict[str, Any]:
    return {
        "bootstrap.servers": f"127.0.0.1:{broker.ports()[1]}",
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


def test_h09_the_reason_of_a_failed_authentication_is_in_the_log_alone(broker: BrokerProcess) -> None:
    errors: list[str] = []
    client = settings(broker, "SCRAM-SHA-256", "alice", "planted-password")
    client["error_cb"] = lambda error: errors.append(str(error))
    # It tries on as long as it lives, also when the machine has left it no time to try before.
    admin = AdminClient(client)
    with pytest.raises(KafkaException):
        admin.list_topics(timeout=2)
    assert errors == [] or "SASL authentication error: Authentication failed" in errors[0]
    line = "with SCRAM-SHA-256 as 'alice' failed: wrong password"
    wait_until(lambda: line in broker.log_text(), "the line in the log")
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
        responses = [wire.answer(key, version) for key, version, _ in asked]
        assert [int(each.error_code) for each in responses[:3]] == [0, 0, 0]
        assert responses[3].topics == ()


def test_h09_a_frame_that_is_too_long_closes_the_connection_at_its_header(broker: BrokerProcess) -> None:
    with SaslWire(broker.ports()[1]) as wire:
        wire.socket.sendall(struct.pack(">ihhi", 524289, 18, 0, 1))
        with pytest.raises(ConnectionError):
            wire.take(1)
        wait_until(lambda: "a frame of 524289 bytes, and 524288 are accepted" in broker.log_text(), "the log line")


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
