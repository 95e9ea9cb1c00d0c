"""`rotunda quota` against a whole broker: quotas are enforced, and their use is shown."""

from __future__ import annotations

import json
from typing import Any

from confluent_kafka import Producer

from tests.support.broker_process import BrokerProcess
from tests.support.deadline import deadline_s


def quota(broker: BrokerProcess, *arguments: str) -> Any:
    """Return the JSON output of a command."""
    done = broker.command("quota", *arguments, "--json")
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def test_quotas_are_set_listed_described_and_deleted(broker: BrokerProcess, topic: str) -> None:
    whose = ("--client-id", topic)
    done = broker.command("quota", "set", *whose, "producer_byte_rate=1048576", "request_percentage=12.5")
    assert done.stdout == (
        f"client-id {topic}: producer_byte_rate: (not set) -> 1048576\n"
        f"client-id {topic}: request_percentage: (not set) -> 12.5\n"
    )
    both = {"producer_byte_rate": 1048576.0, "request_percentage": 12.5}
    assert {"entity": {"client-id": topic}, "quotas": both} in quota(broker, "list")
    assert (
        f"client-id {topic}: producer_byte_rate=1048576 request_percentage=12.5\n"
        in broker.command("quota", "list").stdout
    )
    assert quota(broker, "describe", *whose)["quotas"] == [{"entity": {"client-id": topic}, "quotas": both}]
    [changed] = quota(broker, "delete", *whose, "request_percentage")
    assert changed == {"quota": "request_percentage", "before": 12.5, "after": None}
    [changed] = quota(broker, "delete", *whose)
    assert (changed["before"], changed["after"]) == (1048576.0, None)
    assert quota(broker, "describe", *whose)["quotas"] == []


def test_defaults_and_users_client_ids(broker: BrokerProcess) -> None:
    quota(broker, "set", "--default", "user", "--client-id", "a b", "consumer_byte_rate=1000")
    assert {"entity": {"user": None, "client-id": "a b"}, "quotas": {"consumer_byte_rate": 1000.0}} in quota(
        broker, "list"
    )
    assert len(quota(broker, "delete", "--default", "user", "--client-id", "a b")) == 1


def test_who_is_throttled_is_shown(broker: BrokerProcess, topic: str) -> None:
    """Also without a word of the client's: it is read from shared memory."""
    quota(broker, "set", "--client-id", topic, "producer_byte_rate=1000")
    producer = Producer({"bootstrap.servers": broker.bootstrap, "client.id": topic, "linger.ms": 0})
    for _ in range(2):
        producer.produce(topic, bytes(6_000))
        assert producer.flush(deadline_s()) == 0
    described = quota(broker, "describe", "--client-id", topic)
    [use] = [each for each in described["use"] if each["quota"] == "producer_byte_rate"]
    assert (use["client_id"], use["user"], use["limit"]) == (topic, "", 1000.0)
    assert use["throttled"] >= 1
    assert use["throttle_ms"] > 0
    assert use["rate"] > 1000
    assert "THROTTLED" in broker.command("quota", "describe").stdout
    quota(broker, "delete", "--client-id", topic)


def test_what_makes_no_sense_is_rejected_with_the_reason(broker: BrokerProcess) -> None:
    def refusal(*arguments: str) -> tuple[int, str]:
        done = broker.command("quota", *arguments)
        return done.returncode, done.stderr

    assert refusal("set", "producer_byte_rate=1") == (
        2,
        "rotunda: quota set: missing --user, --client-id, --ip or --default\n",
    )
    code, text = refusal("set", "--client-id", "a", "producer_byte_rate=fast")
    assert (code, text) == (2, "rotunda: quota set: producer_byte_rate=fast: the value is not a number\n")
    code, text = refusal("set", "--client-id", "a", "--default", "client-id", "producer_byte_rate=1")
    assert (code, text) == (2, "rotunda: --client-id and --default client-id exclude each other\n")
    code, text = refusal("set", "--client-id", "a", "nonsense=1")
    assert (code, "INVALID_REQUEST: Invalid configuration key nonsense" in text) == (1, True)
    code, text = refusal("set", "--ip", "1.2.3.4", "--user", "a", "connection_creation_rate=1")
    assert (code, "IP filter component should not be used" in text) == (1, True)
