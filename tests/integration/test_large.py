"""Requests far above a ring's inline size: the arena, its exhaustion, and the limits that reject."""

import os
import struct
from concurrent.futures import ThreadPoolExecutor

import pytest
from confluent_kafka import Consumer, KafkaError, KafkaException, Producer, TopicPartition

from tests.support.broker_process import BrokerProcess
from tests.support.deadline import deadline_s, wait_until
from tests.support.record_batches import record_batch
from tests.support.wire_client import WireClient
from tests.support.wire_messages import (
    API_VERSIONS,
    PRODUCE,
    PRODUCE_VERSION,
    create_topic,
    list_offset,
    produce,
    read_partition,
)

MEGABYTE = 1 << 20
RECORD_BYTES = 10 * MEGABYTE
LIMIT_BYTES = 12 * MEGABYTE
BROKER_SETTINGS = {"message.max.bytes": LIMIT_BYTES, "queued.max.request.bytes": 32 * MEGABYTE}
UNLIMITED = {"message.max.bytes": 100 * MEGABYTE}


def send(producer: Producer, topic: str, value: bytes) -> None:
    failures: list[KafkaError] = []
    producer.produce(topic, value, partition=0, on_delivery=lambda e, _: failures.append(e) if e else None)
    assert producer.flush(deadline_s()) == 0
    if failures:
        raise KafkaException(failures[0])


@pytest.mark.parametrize("codec", ["none", "zstd"])
def test_ten_megabyte_records(broker, wire, topic, codec) -> None:
    create_topic(wire, topic)
    producer = Producer({"bootstrap.servers": broker.bootstrap, "compression.type": codec, **UNLIMITED})
    # Half of it does not compress, so that there is a large request to send.
    sent = [os.urandom(RECORD_BYTES // 2) + bytes(RECORD_BYTES // 2), b"small", os.urandom(RECORD_BYTES)]
    for value in sent:
        send(producer, topic, value)
    settings = {"bootstrap.servers": broker.bootstrap, "group.id": "unused", "fetch.max.bytes": 64 * MEGABYTE}
    consumer = Consumer({**settings, "receive.message.max.bytes": 65 * MEGABYTE})
    consumer.assign([TopicPartition(topic, 0, 0)])
    for value in sent:
        message = consumer.poll(deadline_s())
        assert message is not None
        assert message.error() is None
        assert message.value() == value
    consumer.close()


def test_more_large_requests_at_once_than_the_arena_holds(broker: BrokerProcess, wire, topic) -> None:
    """Connections wait for shared memory (B14), and nothing is lost.

    None is closed except for its own silence: a busy machine may delay a sender for a second (C04).
    """
    create_topic(wire, topic, 4)
    batch = record_batch([os.urandom(RECORD_BYTES)])

    position, closed = broker.log_bytes(), []

    def send_one(number: int) -> int:
        while True:
            try:
                with WireClient(broker.port) as client:
                    return produce(client, topic, number % 4, batch).error_code
            except OSError as error:
                closed.append(error)

    with ThreadPoolExecutor(8) as pool:
        assert list(pool.map(send_one, range(16))) == [0] * 16
    assert [list_offset(wire, topic, index) for index in range(4)] == [(0, 4)] * 4
    assert not closed or any("memory is short" in line for line in broker.log_since(position)), closed


def test_a_request_larger_than_the_arena(broker: BrokerProcess, topic) -> None:
    with WireClient(broker.port) as client:
        create_topic(client, topic, configs={"max.message.bytes": 64 * MEGABYTE})
        value = os.urandom(MEGABYTE) * 40
        assert produce(client, topic, 0, record_batch([value])).error_code == 0
        assert [record.value for record in read_partition(client, topic, 0)] == [value]


def test_c04_memory_grows_with_received_bytes_and_not_with_declared_ones(broker: BrokerProcess, wire) -> None:
    wait_until(broker.has_loaded_everything, "the background imports")
    before = broker.memory_bytes()
    clients = [WireClient(broker.port) for _ in range(200)]
    for client in clients:
        client.send(struct.pack(">ihh", MEGABYTE, PRODUCE, PRODUCE_VERSION))
    wire.call(API_VERSIONS, 0)
    grown = broker.memory_bytes() - before
    for client in clients:
        client.close()
    assert grown < 50 * MEGABYTE, f"{grown} bytes for 200 connections that sent 8 bytes each"
