"""Client quotas as unmodified client libraries see them: delay and throttle time, and no error in the application."""

from __future__ import annotations

import time
import warnings
from typing import Any

import pytest
from confluent_kafka import Consumer, KafkaError, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from tests.integration.test_client_quotas import set_quota
from tests.support.broker_process import BrokerProcess
from tests.support.wire_client import WireClient
from tests.support.wire_messages import create_topic

with warnings.catch_warnings():
    # The client reads its schemas by a function that Python 3.11 deprecates, some of them while it runs.
    warnings.simplefilter("ignore", DeprecationWarning)
    from kafka import KafkaConsumer, KafkaProducer
    from kafka import TopicPartition as PythonTopicPartition

pytestmark = pytest.mark.filterwarnings("ignore:read_text is deprecated:DeprecationWarning")

DEADLINE_S = 240
LIMIT = 50_000
RECORD = bytes(10_000)
#: 70 records are 14 s' worth, of which 10 s' worth may come at once.
RECORDS, LEAST_S = 70, 2.0


def seconds_since(begun: float) -> float:
    return time.monotonic() - begun


def test_e11_librdkafka_produces_slowly_and_sees_the_throttle_time(
    broker: BrokerProcess, wire: WireClient, topic: str
) -> None:
    """E11, E16: every record is acknowledged, the callback for throttles is called."""
    create_topic(wire, topic, 2)
    set_quota(wire, {"client-id": topic}, producer_byte_rate=LIMIT)
    throttles: list[float] = []
    failures: list[KafkaError] = []
    settings: dict[str, Any] = {"bootstrap.servers": broker.bootstrap, "client.id": topic, "batch.size": 20_000}
    # What is in flight already is answered before a mute holds: not everything may be.
    settings["max.in.flight"] = 5
    producer = Producer({**settings, "throttle_cb": lambda event: throttles.append(event.throttle_time)})
    begun = time.monotonic()
    for _ in range(RECORDS):
        producer.produce(topic, RECORD, on_delivery=lambda error, _: failures.append(error) if error else None)
        producer.poll(0)
    assert producer.flush(DEADLINE_S) == 0
    assert seconds_since(begun) >= LEAST_S
    producer.poll(1)
    assert (failures, max(throttles) > 0) == ([], True)


def test_e11_kafka_python_produces_slowly(broker: BrokerProcess, wire: WireClient, topic: str) -> None:
    create_topic(wire, topic, 1)
    set_quota(wire, {"client-id": topic}, producer_byte_rate=LIMIT)
    producer = KafkaProducer(bootstrap_servers=broker.bootstrap, client_id=topic, batch_size=20_000, acks=1)
    begun = time.monotonic()
    sent = [producer.send(topic, RECORD) for _ in range(RECORDS)]
    producer.flush(DEADLINE_S)
    assert [future.get(DEADLINE_S).offset for future in sent] == list(range(RECORDS))
    assert seconds_since(begun) >= LEAST_S
    producer.close()


def fill(broker: BrokerProcess, wire: WireClient, topic: str) -> None:
    """Make a topic with `RECORDS` records, by a client that no quota holds for."""
    create_topic(wire, topic, 1)
    settings: dict[str, Any] = {"bootstrap.servers": broker.bootstrap, "client.id": f"{topic}-filler"}
    producer = Producer({**settings, "batch.size": 20_000})
    for _ in range(RECORDS):
        producer.produce(topic, RECORD, partition=0)
    assert producer.flush(DEADLINE_S) == 0


def test_e12_librdkafka_consumes_slowly_and_everything(broker: BrokerProcess, wire: WireClient, topic: str) -> None:
    """E12: each record once, in order, and no error."""
    fill(broker, wire, topic)
    set_quota(wire, {"client-id": topic}, consumer_byte_rate=LIMIT)
    settings: dict[str, Any] = {"bootstrap.servers": broker.bootstrap, "client.id": topic, "group.id": topic}
    consumer = Consumer({**settings, "fetch.message.max.bytes": 30_000})
    consumer.assign([TopicPartition(topic, 0, 0)])
    offsets: list[int | None] = []
    begun = time.monotonic()
    while len(offsets) < RECORDS:
        assert seconds_since(begun) < DEADLINE_S
        message = consumer.poll(1)
        if message is not None:
            assert message.error() is None
            offsets.append(message.offset())
    consumer.close()
    assert (offsets, seconds_since(begun) >= LEAST_S) == (list(range(RECORDS)), True)


def test_e12_kafka_python_consumes_slowly_and_everything(broker: BrokerProcess, wire: WireClient, topic: str) -> None:
    fill(broker, wire, topic)
    set_quota(wire, {"client-id": topic}, consumer_byte_rate=LIMIT)
    consumer = KafkaConsumer(
        bootstrap_servers=broker.bootstrap, client_id=topic, max_partition_fetch_bytes=30_000, fetch_max_bytes=30_000
    )
    partition = PythonTopicPartition(topic, 0)
    consumer.assign([partition])
    consumer.seek(partition, 0)
    offsets: list[int] = []
    begun = time.monotonic()
    while len(offsets) < RECORDS:
        assert seconds_since(begun) < DEADLINE_S
        offsets += [record.offset for records in consumer.poll(1000).values() for record in records]
    consumer.close()
    assert (offsets, seconds_since(begun) >= LEAST_S) == (list(range(RECORDS)), True)


def test_e15_librdkafka_creates_topics_slowly(broker: BrokerProcess, wire: WireClient, topic: str) -> None:
    """E15: its version of CreateTopics knows no error for it: it is let through, and waits for the next answer."""
    set_quota(wire, {"client-id": topic}, controller_mutation_rate=1)
    admin = AdminClient({"bootstrap.servers": broker.bootstrap, "client.id": topic})
    begun = time.monotonic()
    for number, partitions in enumerate((16, 1)):
        name = f"{topic}-{number}"
        admin.create_topics([NewTopic(name, partitions, 1)])[name].result(DEADLINE_S)
    assert seconds_since(begun) >= LEAST_S
