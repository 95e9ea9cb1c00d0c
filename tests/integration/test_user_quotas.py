"""Quotas of authenticated users that share a client id, at a running broker (`E09`)."""

import json
from pathlib import Path
from typing import Any

import pyarrow.dataset as ds
from confluent_kafka import Producer

from tests.support.broker_process import BrokerProcess
from tests.support.deadline import deadline_s, wait_until

USERS = ("alice", "bob")
SETTINGS = {
    "listeners": "PLAINTEXT://127.0.0.1:0,SASL_PLAINTEXT://127.0.0.1:0",
    "sasl.enabled.mechanisms": "PLAIN",
    "listener.name.sasl_plaintext.plain.sasl.jaas.config": (
        "org.apache.kafka.common.security.plain.PlainLoginModule required "
        + " ".join(f'user_{user}="secret"' for user in USERS)
        + ";"
    ),
    "num.network.threads": 2,
    "num.io.threads": 2,
}
LIMIT = 100_000


def uses(broker: BrokerProcess) -> list[dict[str, Any]]:
    described = broker.command("quota", "describe", "--json")
    assert described.returncode == 0, described.stderr
    found: list[dict[str, Any]] = json.loads(described.stdout)["use"]
    return found


def produce(broker: BrokerProcess, user: str, failures: list[object]) -> None:
    """Produce three times the quota at once."""
    address = broker.status()["bootstrap"].split(",")[1]
    producer = Producer(
        {
            "bootstrap.servers": address,
            "client.id": "app",
            "security.protocol": "SASL_PLAINTEXT",
            "sasl.mechanism": "PLAIN",
            "sasl.username": user,
            "sasl.password": "secret",
            "batch.size": 50_000,
            "compression.type": "none",
        }
    )
    for _ in range(80):
        producer.produce("topic", bytes(20_000), on_delivery=lambda error, _: failures.append(error))
        producer.poll(0)
    assert producer.flush(deadline_s(60)) == 0


def test_e09_two_users_of_one_client_id_have_quotas_of_their_own(tmp_path: Path) -> None:
    """Both send the same: the limited one is throttled and loses nothing, and the other one is not throttled."""
    broker = BrokerProcess(tmp_path, SETTINGS, ephemeral=False).start()
    try:
        done = broker.command("quota", "set", "--user", "alice", "--client-id", "app", f"producer_byte_rate={LIMIT}")
        assert done.returncode == 0, done.stderr
        done = broker.command("quota", "set", "--user", "bob", "producer_byte_rate=1000000000")
        assert done.returncode == 0, done.stderr
        failures: list[object] = []
        for user in USERS:
            produce(broker, user, failures)
        assert failures == [None] * 160
        throttled = {(each["user"], each["client_id"]): each["throttled"] for each in uses(broker)}
        assert throttled["alice", "app"] > 0
        assert throttled["bob", ""] == 0
        # Every process that has charged for a deleted quota forgets it.
        done = broker.command("quota", "delete", "--user", "alice", "--client-id", "app")
        assert done.returncode == 0, done.stderr
        wait_until(lambda: {each["user"] for each in uses(broker)} == {"bob"}, "who has no quota is not shown")
    finally:
        broker.stop()
    rows = ds.dataset(tmp_path / "data" / "request-log" / "requests", format="parquet").to_table(
        columns=["principal", "clientId", "throttledBy", "throttleTimeUs"]
    )
    told = {
        (row["principal"], row["clientId"], row["throttledBy"]) for row in rows.to_pylist() if row["throttleTimeUs"]
    }
    assert told == {("User:alice", "app", "producer_byte_rate")}
