"""Edges of Produce, Fetch and ListOffsets that peers of Kafka got wrong; each is a regression test."""

import random
import struct
import time

import pytest
from confluent_kafka import Consumer, TopicPartition

from tests.support.broker_process import BrokerProcess
from tests.support.deadline import wait_until
from tests.support.record_batches import record_batch
from tests.support.wire_client import WireClient, request_frame
from tests.support.wire_messages import (
    EARLIEST,
    FETCH,
    FETCH_VERSION,
    LATEST,
    METADATA,
    Fetched,
    Reader,
    create_topic,
    fetch,
    fetch_body,
    list_offset,
    metadata_body,
    produce,
    read_batches,
    read_fetch,
    string,
)

OFFSET_OUT_OF_RANGE, UNKNOWN_TOPIC_OR_PARTITION, MESSAGE_TOO_LARGE, INVALID_RECORD = 1, 3, 10, 87
BASE_MS = 1_700_000_000_000


def fetch_sized(client: WireClient, topic: str, offset: int, size: int, **wait: int) -> Fetched:
    body = fetch_body(topic, 0, offset, size=size, **wait)
    return read_fetch(client.call(FETCH, FETCH_VERSION, body))[0]


@pytest.mark.parametrize("codec", [0, 1, 4])
def test_fetch_from_the_middle_of_a_batch(broker: BrokerProcess, wire, topic, codec) -> None:
    """The response has the whole batch and the client skips: no record is lost and none hangs."""
    create_topic(wire, topic)
    for start in (0, 100, 200):
        produce(wire, topic, 0, record_batch([b"%d" % n for n in range(start, start + 100)], codec=codec))
    settings = {"bootstrap.servers": broker.bootstrap, "group.id": "unused", "enable.auto.commit": False}
    consumer = Consumer(settings)
    for offset in (0, 1, 99, 100, 150, 299):
        consumer.assign([TopicPartition(topic, 0, offset)])
        message = consumer.poll(60)
        assert message is not None
        assert (message.offset(), message.value()) == (offset, b"%d" % offset)
    consumer.close()


def test_a_first_batch_larger_than_the_limit_is_sent_whole(wire, topic) -> None:
    """KIP-74: a consumer with small limits makes progress; later batches must fit."""
    create_topic(wire, topic)
    batches = [record_batch([bytes(5000)]) for _ in range(4)]
    for batch in batches:
        produce(wire, topic, 0, batch)
    assert len(fetch_sized(wire, topic, 1, 100).records) == len(batches[0])
    one_and_a_half = len(batches[0]) * 3 // 2
    assert [r.offset for r in read_batches(fetch_sized(wire, topic, 1, one_and_a_half).records)] == [1]
    assert [r.offset for r in read_batches(fetch_sized(wire, topic, 1, 2 * one_and_a_half).records)] == [
        1,
        2,
        3,
    ]


def test_a_fetch_outside_the_log_is_rejected_at_once(wire, topic) -> None:
    create_topic(wire, topic)
    produce(wire, topic, 0, record_batch([b"x"]))
    assert fetch(wire, topic, 0, 1).error_code == 0
    for offset in (2, 1000, -1, 2**62):
        answer = fetch(wire, topic, 0, offset, max_wait_ms=60_000)
        assert answer.error_code == OFFSET_OUT_OF_RANGE, offset
    assert fetch(wire, topic, 1, 0).error_code == UNKNOWN_TOPIC_OR_PARTITION
    assert fetch(wire, f"{topic}-absent", 0, 0).error_code == UNKNOWN_TOPIC_OR_PARTITION


def test_fetch_waits_for_min_bytes_and_no_longer_than_told(broker: BrokerProcess, wire, topic) -> None:
    create_topic(wire, topic)
    begin = time.monotonic()
    assert fetch_sized(wire, topic, 0, 10_000, max_wait_ms=300).records == b""
    assert time.monotonic() - begin >= 0.29
    with WireClient(broker.port) as other:
        body = fetch_body(topic, 0, 0, max_wait_ms=30_000, min_bytes=1000)
        wire.send(request_frame(FETCH, FETCH_VERSION, 1, body))
        produce(other, topic, 0, record_batch([b"x" * 400]))
        wire.expect_silence(0.2)
        produce(other, topic, 0, record_batch([b"x" * 800]))
        fetched = read_fetch(wire.receive_frame()[4:])[0]
    assert len(list(read_batches(fetched.records))) == 2


def test_one_fetch_reads_partitions_of_every_owner(wire, topic) -> None:
    """The total limit counts over all partitions, and the first ones are not starved of their first batch."""
    partitions = 12
    create_topic(wire, topic, partitions)
    for partition in range(partitions):
        produce(wire, topic, partition, record_batch([b"%d" % partition]))
    body = struct.pack(">iiiibiii", -1, 0, 1, 1 << 20, 0, 0, -1, 1) + string(topic) + struct.pack(">i", partitions)
    for partition in range(partitions):
        body += struct.pack(">iiqqi", partition, -1, 0, -1, 1 << 20)
    answers = read_fetch(wire.call(FETCH, FETCH_VERSION, body + struct.pack(">i", 0) + string("")))
    values = {answer.partition: [r.value for r in read_batches(answer.records)] for answer in answers}
    assert values == {partition: [b"%d" % partition] for partition in range(partitions)}


def test_max_message_bytes_of_a_topic_is_enforced(wire, topic) -> None:
    create_topic(wire, topic, configs={"max.message.bytes": 1000})
    assert produce(wire, topic, 0, record_batch([bytes(2000)])).error_code == MESSAGE_TOO_LARGE
    assert produce(wire, topic, 0, record_batch([bytes(500)])).error_code == 0


def test_a_compacted_topic_rejects_records_without_a_key(wire, topic) -> None:
    create_topic(wire, topic, configs={"cleanup.policy": "compact"})
    assert produce(wire, topic, 0, record_batch([b"x"])).error_code == INVALID_RECORD
    assert produce(wire, topic, 0, record_batch([b"x"], keys=[b"k"])).error_code == 0


def test_produce_to_what_does_not_exist(wire, topic) -> None:
    create_topic(wire, topic, 2)
    assert produce(wire, topic, 2, record_batch([b"x"])).error_code == UNKNOWN_TOPIC_OR_PARTITION
    assert produce(wire, topic, -1, record_batch([b"x"])).error_code == UNKNOWN_TOPIC_OR_PARTITION
    absent = produce(wire, f"{topic}-absent", 0, record_batch([b"x"]))
    assert absent.error_code == UNKNOWN_TOPIC_OR_PARTITION


def topic_error(client: WireClient, topic: str, *, auto_create: bool) -> int:
    """Return the error code of one topic in Metadata 4."""
    reader = Reader(client.call(METADATA, 4, metadata_body([topic], auto_create)))
    reader.number("i")
    for _ in range(reader.number("i")):
        reader.number("i")
        reader.string()
        reader.number("i")
        reader.string()
    reader.string()
    reader.take("ii")
    return reader.number("h")


def test_metadata_creates_a_topic_only_when_asked_to(wire, topic) -> None:
    assert topic_error(wire, topic, auto_create=False) == UNKNOWN_TOPIC_OR_PARTITION
    wait_until(lambda: topic_error(wire, topic, auto_create=True) == 0, "the topic")
    assert topic_error(wire, topic, auto_create=False) == 0
    assert produce(wire, topic, 0, record_batch([b"x"])).error_code == 0


@pytest.mark.parametrize("seed", range(4))
def test_offsets_by_timestamp_against_a_model(wire, topic, seed) -> None:
    """Timestamps out of order, equal, in batches of any size and codec: the first one not older wins."""
    chance = random.Random(seed)
    create_topic(wire, topic)
    timestamps: list[int] = []
    for _ in range(60):
        count, step = chance.randint(1, 20), chance.randint(0, 40)
        start = BASE_MS + chance.randint(0, 5000)
        batch = record_batch(
            [b"x" * 300] * count, timestamp_ms=start, timestamp_step_ms=step, codec=chance.randint(0, 4)
        )
        assert produce(wire, topic, 0, batch).error_code == 0
        timestamps += [start + number * step for number in range(count)]
    targets = [chance.choice(timestamps) + chance.randint(-3, 3) for _ in range(60)]
    for target in [*targets, 0, BASE_MS, max(timestamps), max(timestamps) + 1]:
        model = next((n for n, stamp in enumerate(timestamps) if stamp >= target), -1)
        assert list_offset(wire, topic, 0, target) == (0, model), f"seed {seed}, timestamp {target}"
    assert list_offset(wire, topic, 0, LATEST) == (0, len(timestamps))
    assert list_offset(wire, topic, 0, EARLIEST) == (0, 0)


def test_offsets_of_an_empty_partition_and_of_none(wire, topic) -> None:
    create_topic(wire, topic)
    assert list_offset(wire, topic, 0, BASE_MS) == (0, -1)
    assert list_offset(wire, topic, 1)[0] == UNKNOWN_TOPIC_OR_PARTITION
    assert list_offset(wire, f"{topic}-absent", 0)[0] == UNKNOWN_TOPIC_OR_PARTITION
