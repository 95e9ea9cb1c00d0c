"""The metrics of our producer compared with the Java producer's own, and with the broker's counts."""

from __future__ import annotations

import os
import re
import subprocess
from collections import defaultdict
from collections.abc import Iterator, Mapping

import pytest

from ops.compatibility import preparation
from rotunda.broker.client import Producer
from rotunda.broker.client.errors import KafkaError
from rotunda.broker.testing import RotundaBroker
from tests.support.deadline import deadline_s

pytestmark = [pytest.mark.slow, pytest.mark.needs("kafka")]

RECORDS = 10
PRINTED = re.compile(r"producer-(\w+-)?metrics:([\w-]+)")
#: Those of the I/O thread and of calls, and those that clients cannot measure; listed in docs/producer.md.
JAVAS_ALONE = re.compile(
    r"io-|select-|network-io-|txn-|flush-|metadata-wait-|reauthentication-|failed-reauth|.*-no-reauth-"
)


@pytest.fixture(scope="module")
def broker() -> Iterator[RotundaBroker]:
    with RotundaBroker() as running:
        running.create_topic("orders")
        running.create_topic("payments")
        yield running


def printed_by_java(bootstrap: str) -> Mapping[str, set[str]]:
    """Return the names that kafka-producer-perf-test prints, by the middle of the group's name."""
    classes = f"{preparation.JARS}/*{os.pathsep}{preparation.KAFKA_JARS}/*"
    command = ["java", "-cp", classes, "org.apache.kafka.tools.ProducerPerformance", "--bootstrap-server", bootstrap]
    command += ["--topic", "orders", "--num-records", str(RECORDS), "--record-size", "10", "--throughput", "-1"]
    done = subprocess.run(
        [*command, "--print-metrics"], capture_output=True, text=True, check=False, timeout=deadline_s(50)
    )
    assert done.returncode == 0, done.stderr
    found: dict[str, set[str]] = defaultdict(set)
    for group, name in PRINTED.findall(done.stdout):
        found[group].add(name)
    return found


def test_metrics_have_the_names_that_java_has(broker: RotundaBroker) -> None:
    """`G08`, `G17`, `G19`, `G21`, `G26`, `G28`, `G31`, `G33`, `G35`: in each of the three groups."""
    java = printed_by_java(broker.bootstrap)
    with Producer({"bootstrap.servers": broker.bootstrap}) as producer:
        producer.send("orders", b"x").result(deadline_s())
        ours = producer.metrics()
        assert set(ours) == {name for name in java[""] if not JAVAS_ALONE.match(name)}
        assert [set(names) for names in producer.topic_metrics().values()] == [java["topic-"]]
        nodes = producer.node_metrics()
    assert len(nodes) == 2, "the bootstrap server and the broker"
    assert all(set(names) == java["node-"] for names in nodes.values())


def test_metrics_by_topic_and_broker_are_what_the_broker_was_sent(broker: RotundaBroker) -> None:
    settings = {"bootstrap.servers": broker.bootstrap, "client.id": "counted", "linger.ms": 50, "retry.backoff.ms": 1}
    with Producer(settings) as producer:
        with broker.fail("Produce", "NOT_LEADER_OR_FOLLOWER", times=1, topic="orders", client="counted") as fault:
            for future in [producer.send("orders", b"x" * 100) for _ in range(RECORDS)]:
                future.result(deadline_s())
        assert fault.count == 1
        with broker.fail("Produce", "INVALID_RECORD", topic="payments", client="counted"), pytest.raises(KafkaError):
            producer.send("payments", b"x").result(deadline_s())
        orders, payments = (producer.topic_metrics()[name] for name in ("orders", "payments"))
        nodes, together = producer.node_metrics(), producer.metrics()
    retried = orders["record-retry-total"]
    assert 1 <= retried <= RECORDS
    assert (orders["record-send-total"], orders["record-error-total"]) == (RECORDS + retried, 0)
    assert orders["byte-total"] > RECORDS * 100
    assert orders["compression-rate"] == 1
    assert (payments["record-send-total"], payments["record-error-total"]) == (1, 1)
    assert together["record-send-total"] == RECORDS + retried + 1

    sent = broker.requests(client_id="counted")
    assert together["request-total"] == together["response-total"] == len(sent)
    for name in ("request-total", "response-total", "outgoing-byte-total", "incoming-byte-total"):
        assert together[name] == sum(node[name] for node in nodes.values()) > 0
    [leader] = [node for node in nodes.values() if node["request-latency-max"]]
    assert leader["request-latency-max"] >= leader["request-latency-avg"] > 0
    assert leader["outgoing-byte-total"] > RECORDS * 100
    assert leader["request-size-max"] > leader["request-size-avg"] > 0
    assert min(nodes) < 0 < max(nodes)
