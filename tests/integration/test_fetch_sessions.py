"""Clients with fetch sessions (KIP-227) while handlers are killed: no record is lost or duplicated (``E22``)."""

from __future__ import annotations

import time
import warnings
from collections import defaultdict
from collections.abc import Iterator

import pytest
from confluent_kafka import Producer

from tests.support.broker_process import BrokerProcess
from tests.support.deadline import deadline_s, wait_until
from tests.support.wire_client import WireClient
from tests.support.wire_messages import create_topic

with warnings.catch_warnings():
    # The client reads its schemas by a function that Python 3.11 deprecates, some of them while it runs.
    warnings.simplefilter("ignore", DeprecationWarning)
    from kafka import KafkaConsumer, TopicPartition

pytestmark = pytest.mark.filterwarnings("ignore:read_text is deprecated:DeprecationWarning")

BROKER_SETTINGS = {"num.io.threads": 2, "process.restart.limit": 1_000_000}
PARTITIONS, ROUNDS = 20, 5


@pytest.fixture
def consumer(broker: BrokerProcess) -> Iterator[KafkaConsumer]:
    """Yield a consumer without a group."""
    client = KafkaConsumer(bootstrap_servers=broker.bootstrap, auto_offset_reset="earliest")
    yield client
    client.close()


def sessions(broker: BrokerProcess) -> float:
    """Return how many sessions all handlers have."""
    lines = broker.command("metrics").stdout.splitlines()
    return sum(float(line.split()[-1]) for line in lines if line.startswith("rotunda_handler_fetch_sessions{"))


def test_a_consumer_with_a_session_goes_on_when_its_handler_is_killed(
    broker: BrokerProcess, wire: WireClient, topic: str, consumer: KafkaConsumer
) -> None:
    """And its application sees no error."""
    create_topic(wire, topic, PARTITIONS)
    producer = Producer({"bootstrap.servers": broker.bootstrap, "enable.idempotence": True})
    consumer.assign([TopicPartition(topic, partition) for partition in range(PARTITIONS)])
    sent: dict[int, list[bytes]] = defaultdict(list)
    got: dict[int, list[bytes]] = defaultdict(list)
    deadline = time.monotonic() + deadline_s()
    for number in range(ROUNDS):
        for partition in range(number % 3, PARTITIONS, 3):
            sent[partition].append(b"%d" % number)
            producer.produce(topic, sent[partition][-1], partition=partition)
        broker.kill("handler", wait=False)
        assert producer.flush(deadline_s()) == 0
        while got != sent:
            assert time.monotonic() < deadline, (sent, got)
            for place, records in consumer.poll(timeout_ms=500).items():
                got[place.partition] += [record.value for record in records]
        wait_until(lambda: sessions(broker) > 0, "a session")
