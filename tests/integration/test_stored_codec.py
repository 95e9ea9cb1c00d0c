"""`compression.type` of a topic: the broker recompresses batches, and every client can read them."""

from __future__ import annotations

import asyncio
import time

import pytest
from aiokafka import AIOKafkaConsumer
from aiokafka import TopicPartition as AioTopicPartition
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from rotunda.broker.records.record_batch import batch_headers
from tests.support.broker_process import BrokerProcess
from tests.support.deadline import deadline_s
from tests.support.wire_client import WireClient
from tests.support.wire_messages import fetch

CODECS = ("uncompressed", "gzip", "snappy", "lz4", "zstd")
#: Recent, so that retention leaves the records alone.
BASE_MS = time.time_ns() // 1_000_000 - 60_000
VALUES = [b"%d " % number * 2_000 for number in range(100)]


@pytest.fixture(params=CODECS)
def codec(request: pytest.FixtureRequest) -> str:
    """Return each codec that a topic can have."""
    return str(request.param)


def read_by_librdkafka(broker: BrokerProcess, topic: str) -> list[tuple[int, bytes, int]]:
    consumer = Consumer(
        {"bootstrap.servers": broker.bootstrap, "group.id": "unused", "enable.auto.commit": False, "check.crcs": True}
    )
    consumer.assign([TopicPartition(topic, 0, 0)])
    read = []
    while len(read) < len(VALUES):
        message = consumer.poll(deadline_s())
        assert message is not None
        assert message.error() is None, message.error()
        read.append((message.offset(), message.value(), message.timestamp()[1]))
    consumer.close()
    return read


def read_by_aiokafka(broker: BrokerProcess, topic: str) -> list[tuple[int, bytes, int]]:
    async def read() -> list[tuple[int, bytes, int]]:
        consumer = AIOKafkaConsumer(bootstrap_servers=broker.bootstrap)
        await consumer.start()
        try:
            place = AioTopicPartition(topic, 0)
            consumer.assign([place])
            consumer.seek(place, 0)
            messages = [await consumer.getone() for _ in VALUES]
        finally:
            await consumer.stop()
        return [(message.offset, message.value, message.timestamp) for message in messages]

    return asyncio.run(asyncio.wait_for(read(), deadline_s()))


def test_every_client_reads_recompressed_batches(broker: BrokerProcess, topic: str, codec: str) -> None:
    """Row 8 of users.md: a setting that is stored is also honoured."""
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    new = NewTopic(topic, 1, 1, config={"compression.type": codec})
    admin.create_topics([new])[topic].result(deadline_s())
    for sent_as, first in (("none", 0), ("gzip", 34), ("zstd", 67)):
        producer = Producer({"bootstrap.servers": broker.bootstrap, "compression.type": sent_as, "linger.ms": 20})
        last = {0: 34, 34: 67, 67: 100}[first]
        for number in range(first, last):
            producer.produce(topic, VALUES[number], partition=0, timestamp=BASE_MS + number)
        assert producer.flush(deadline_s()) == 0
    expected = [(number, value, BASE_MS + number) for number, value in enumerate(VALUES)]
    assert read_by_librdkafka(broker, topic) == expected
    assert read_by_aiokafka(broker, topic) == expected
    with WireClient(broker.port) as client:
        stored = fetch(client, topic, 0, 0).records
    assert {header.codec for _, header in batch_headers(stored)} == {CODECS.index(codec)}
