"""Our own producer against a broker, read back by librdkafka's consumer, record by record."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

import pytest
from confluent_kafka import Consumer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from rotunda.broker.client import AsyncProducer, Producer
from rotunda.broker.client.producer.futures import RecordFuture
from rotunda.broker.records.record_batch import CODECS
from tests.support.broker_process import BrokerProcess
from tests.support.deadline import deadline_s, wait_until

RECORDS = 600
PARTITIONS = 3
HEADERS = [("trace", b"\x00\x01"), ("empty", b""), ("null", None)]


def make_topic(broker: BrokerProcess, topic: str) -> None:
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    admin.create_topics([NewTopic(topic, PARTITIONS, 1)])[topic].result(deadline_s())


def read_back(broker: BrokerProcess, topic: str, count: int) -> list[tuple[Any, ...]]:
    """Return the records of a topic: partition, offset, key, value, headers, timestamp."""
    consumer = Consumer({"bootstrap.servers": broker.bootstrap, "group.id": "g", "auto.offset.reset": "earliest"})
    consumer.assign([TopicPartition(topic, each, 0) for each in range(PARTITIONS)])
    found: list[tuple[Any, ...]] = []

    def is_all() -> bool:
        for message in consumer.consume(1000, 0.1):
            assert message.error() is None
            place = message.partition(), message.offset()
            found.append((*place, message.key(), message.value(), message.headers(), message.timestamp()[1]))
        return len(found) >= count

    wait_until(is_all, f"{count} records in {topic}")
    consumer.close()
    return sorted(found, key=lambda record: record[:2])


def expected(sent: Sequence[tuple[RecordFuture, tuple[Any, ...]]]) -> list[tuple[Any, ...]]:
    """Return the same of the sent records, at the offsets of their futures."""
    places = [(future.result(deadline_s()), record) for future, record in sent]
    return sorted(
        ((meta.partition, meta.offset, *record, meta.timestamp_ms) for meta, record in places),
        key=lambda record: record[:2],
    )


@pytest.mark.parametrize("acks", ["all", 1])
@pytest.mark.parametrize("codec", CODECS)
def test_the_own_producers_records_are_read_as_written(broker, topic, codec, acks) -> None:
    make_topic(broker, topic)
    settings = {"bootstrap.servers": broker.bootstrap, "compression.type": codec, "acks": acks, "batch.size": 4096}
    with Producer(settings) as producer:
        sent = []
        for number in range(RECORDS):
            key = b"key %d" % (number % 7) if number % 3 else None
            value = b"value %d " % number * (number % 20) if number % 50 else None
            headers = HEADERS if number % 11 == 0 else None
            sent.append((producer.send(topic, value, key, headers), (key, value, headers)))
        producer.flush()
        assert all(future.done() for future, _ in sent)
    assert read_back(broker, topic, RECORDS) == expected(sent)


def test_acks_0_has_no_offsets(broker, topic) -> None:
    make_topic(broker, topic)
    with Producer(bootstrap_servers=broker.bootstrap, acks=0) as producer:
        futures = [producer.send(topic, b"%d" % number) for number in range(100)]
        assert {future.result(deadline_s()).offset for future in futures} == {-1}
    assert sorted(int(record[3]) for record in read_back(broker, topic, 100)) == list(range(100))


def test_partition_and_timestamp_are_those_given_and_callbacks_are_called(broker, topic) -> None:
    make_topic(broker, topic)
    told: list[tuple[Any, ...]] = []
    with Producer(bootstrap_servers=broker.bootstrap) as producer:
        for number in range(50):
            producer.send(
                topic, b"v", partition=number % PARTITIONS, timestamp_ms=1_700_000_000_000 + number,
                on_delivery=lambda meta, error: told.append((meta.partition, meta.offset, meta.timestamp_ms, error)),
            )  # fmt: skip
        for _ in range(50):
            producer.send(
                topic, b"v", on_delivery=lambda meta, error: told.append((meta.partition, meta.offset, error))
            )
    assert len(told) == 100
    assert {each[-1] for each in told} == {None}
    found = read_back(broker, topic, 100)
    assert {record[:2] for record in found} == {each[:2] for each in told}
    assert {(*record[:2], record[-1]) for record in found} >= {each[:3] for each in told if len(each) == 4}


def test_the_asyncio_face_sends_the_same(broker, topic) -> None:
    make_topic(broker, topic)

    async def work() -> None:
        told = []
        async with AsyncProducer(bootstrap_servers=broker.bootstrap, linger_ms=0) as producer:
            first = await producer.send_and_wait(topic, b"first", key=b"k")
            assert first.offset == 0
            futures = [await producer.send(topic, b"%d" % number) for number in range(RECORDS)]
            futures.append(await producer.send(topic, b"last", on_delivery=lambda *told_of: told.append(told_of)))
            found = await asyncio.gather(*futures)
            assert len({each[:3] for each in found}) == RECORDS + 1
            await producer.flush()
            assert len(await producer.partitions_for(topic)) == PARTITIONS
        assert [each[1] for each in told] == [None]

    asyncio.run(asyncio.wait_for(work(), 60))
    assert len(read_back(broker, topic, RECORDS + 2)) == RECORDS + 2
