"""An unmodified librdkafka client (confluent-kafka) against a real broker."""

import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest
from confluent_kafka import (
    TIMESTAMP_CREATE_TIME,
    Consumer,
    KafkaError,
    KafkaException,
    Message,
    Producer,
    TopicCollection,
    TopicPartition,
)
from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    ConfigSource,
    NewPartitions,
    NewTopic,
    ResourceType,
)

from tests.support.broker_process import BrokerProcess
from tests.support.deadline import deadline_s, wait_until

pytestmark = pytest.mark.walk

#: Recent, so that retention leaves the records alone.
BASE_MS = time.time_ns() // 1_000_000 - 60_000


@pytest.fixture
def producer_of(broker: BrokerProcess) -> Callable[..., Producer]:
    """Create a producer; underscores in the names replace dots."""

    def make(**settings: object) -> Producer:
        named = {key.replace("_", "."): value for key, value in settings.items()}
        return Producer({"bootstrap.servers": broker.bootstrap, "linger.ms": 5, **named})

    return make


@pytest.fixture
def consumer(broker: BrokerProcess) -> Iterator[Consumer]:
    """Yield a consumer that is assigned by hand."""
    client = Consumer(
        {
            "bootstrap.servers": broker.bootstrap,
            "group.id": "unused",
            "enable.auto.commit": False,
            "enable.partition.eof": False,
            "auto.offset.reset": "error",
            "allow.auto.create.topics": False,
        }
    )
    yield client
    client.close()


def create(admin: AdminClient, name: str, partitions: int = 1, **configs: str) -> None:
    settings = {key.replace("_", "."): value for key, value in configs.items()}
    future = admin.create_topics([NewTopic(name, partitions, 1, config=settings)])[name]
    future.result(deadline_s())


def read(consumer: Consumer, count: int) -> list[Message]:
    """Read exactly `count` messages, then nothing more."""
    messages: list[Message] = []
    while len(messages) < count:
        got = consumer.consume(count - len(messages), timeout=deadline_s())
        assert got, f"{len(messages)} of {count} messages"
        assert all(message.error() is None for message in got), [message.error() for message in got]
        messages += got
    return messages


def delivered(producer: Producer, topic: str, value: bytes, **settings: object) -> Message:
    """Produce one message, wait for its delivery report, and raise its error if it has one."""
    reports: list[tuple[KafkaError | None, Message]] = []
    producer.produce(topic, value, on_delivery=lambda *report: reports.append(report), **settings)
    assert producer.flush(deadline_s()) == 0
    error, message = reports[0]
    if error is not None:
        raise KafkaException(error)
    return message


def code_of(raised: pytest.ExceptionInfo[KafkaException]) -> int:
    return raised.value.args[0].code()


@pytest.mark.parametrize(
    ("codec", "acks"), [("none", "0"), ("gzip", "1"), ("snappy", "all"), ("lz4", "1"), ("zstd", "all")]
)
def test_records_are_read_as_written(admin, producer_of, consumer, topic, codec, acks) -> None:
    create(admin, topic)
    producer = producer_of(acks=acks, compression_type=codec)
    sent = []
    for number in range(200):
        key = None if number % 3 == 0 else f"key-{number}".encode()
        value = None if number % 50 == 49 else f"value-{number}-".encode() * (number % 7)
        headers = [("one", b"1"), ("two", None), ("one", f"{number}".encode())] if number % 2 else None
        sent.append((number, key, value, headers, (TIMESTAMP_CREATE_TIME, BASE_MS + number)))
        producer.produce(topic, value, key, timestamp=BASE_MS + number, headers=headers, partition=0)
    assert producer.flush(deadline_s()) == 0
    consumer.assign([TopicPartition(topic, 0, 0)])
    got = [(m.offset(), m.key(), m.value(), m.headers(), m.timestamp()) for m in read(consumer, len(sent))]
    assert got == sent


def test_idempotent_producer_keeps_order_in_every_partition(admin, producer_of, consumer, topic) -> None:
    create(admin, topic, 6)
    producer = producer_of(enable_idempotence=True, batch_num_messages=50)
    failed: list[KafkaError] = []
    for number in range(6000):
        producer.produce(
            topic,
            str(number).encode(),
            partition=number % 6,
            on_delivery=lambda error, _: failed.append(error) if error else None,
        )
        producer.poll(0)
    assert producer.flush(deadline_s()) == 0
    assert not failed
    consumer.assign([TopicPartition(topic, index, 0) for index in range(6)])
    found: dict[int, list[int]] = {index: [] for index in range(6)}
    for message in read(consumer, 6000):
        found[message.partition()].append(int(message.value()))
    assert found == {index: list(range(index, 6000, 6)) for index in range(6)}


def test_positions_are_found_and_deleted_ones_are_out_of_range(admin, producer_of, consumer, topic) -> None:
    create(admin, topic)
    producer = producer_of()
    for number in range(100):
        producer.produce(topic, str(number).encode(), partition=0, timestamp=BASE_MS + 10 * number)
    assert producer.flush(deadline_s()) == 0
    consumer.assign([TopicPartition(topic, 0, 42)])
    assert read(consumer, 1)[0].value() == b"42"
    consumer.seek(TopicPartition(topic, 0, 7))
    assert read(consumer, 1)[0].value() == b"7"
    for wanted_ms, offset in (
        (BASE_MS - 1, 0),
        (BASE_MS + 250, 25),
        (BASE_MS + 251, 26),
        (BASE_MS + 990, 99),
    ):
        found = consumer.offsets_for_times([TopicPartition(topic, 0, wanted_ms)], deadline_s())
        assert [part.offset for part in found] == [offset]
    beyond = consumer.offsets_for_times([TopicPartition(topic, 0, BASE_MS + 991)], deadline_s())
    assert beyond[0].offset == -1
    assert consumer.get_watermark_offsets(TopicPartition(topic, 0), deadline_s()) == (0, 100)
    part = TopicPartition(topic, 0, 94)
    assert admin.delete_records([part])[part].result(deadline_s()).low_watermark == 94
    assert consumer.get_watermark_offsets(part, deadline_s()) == (94, 100)
    consumer.assign([part])
    assert [message.value() for message in read(consumer, 6)] == [b"%d" % number for number in range(94, 100)]
    for offset in (0, 1000):
        consumer.assign([TopicPartition(topic, 0, offset)])
        message = consumer.poll(deadline_s())
        assert message is not None
        assert message.error().code() in (KafkaError._AUTO_OFFSET_RESET, KafkaError.OFFSET_OUT_OF_RANGE)


def test_auto_created_topic_is_usable_at_once(producer_of) -> None:
    name = f"auto-{uuid.uuid4().hex[:8]}"
    assert delivered(producer_of(), name, b"first").offset() == 0


@pytest.mark.parametrize("acks", ["1", "all"])
def test_too_large_a_record_is_rejected_and_the_next_one_accepted(admin, producer_of, topic, acks) -> None:
    create(admin, topic, max_message_bytes="2000")
    producer = producer_of(acks=acks, message_max_bytes=1_000_000)
    with pytest.raises(KafkaException) as raised:
        delivered(producer, topic, b"x" * 5000)
    assert code_of(raised) == KafkaError.MSG_SIZE_TOO_LARGE
    assert delivered(producer, topic, b"x" * 1000).offset() == 0


def test_topic_life_cycle(admin, producer_of, consumer, topic) -> None:
    create(admin, topic, 2)
    described = admin.describe_topics(TopicCollection([topic]))[topic].result(deadline_s())
    assert [(part.id, part.leader.id) for part in described.partitions] == [(0, 1), (1, 1)]
    admin.create_partitions([NewPartitions(topic, 5)])[topic].result(deadline_s())
    assert delivered(producer_of(), topic, b"x", partition=4).partition() == 4
    assert set(admin.list_topics(topic, deadline_s()).topics[topic].partitions) == set(range(5))
    first_id = described.topic_id
    admin.delete_topics([topic])[topic].result(deadline_s())
    assert topic not in admin.list_topics(timeout=deadline_s()).topics
    create(admin, topic, 1)
    again = admin.describe_topics(TopicCollection([topic]))[topic].result(deadline_s())
    assert str(again.topic_id) != str(first_id)
    assert consumer.get_watermark_offsets(TopicPartition(topic, 0), deadline_s()) == (0, 0)


def test_configs_can_be_read_and_changed(admin, topic) -> None:
    create(admin, topic, retention_ms="1234567")
    resource = ConfigResource(ResourceType.TOPIC, topic)
    before = admin.describe_configs([resource])[resource].result(deadline_s())
    assert before["retention.ms"].value == "1234567"
    assert before["retention.ms"].source == ConfigSource.DYNAMIC_TOPIC_CONFIG.value
    assert before["cleanup.policy"].value == "delete"
    assert before["cleanup.policy"].is_default
    change = ConfigResource(
        ResourceType.TOPIC,
        topic,
        incremental_configs=[
            ConfigEntry("max.message.bytes", "5000", incremental_operation=AlterConfigOpType.SET),
            ConfigEntry("retention.ms", None, incremental_operation=AlterConfigOpType.DELETE),
        ],
    )
    admin.incremental_alter_configs([change])[change].result(deadline_s())
    after = admin.describe_configs([resource])[resource].result(deadline_s())
    assert after["max.message.bytes"].value == "5000"
    assert after["retention.ms"].is_default
    broker = ConfigResource(ResourceType.BROKER, "1")
    assert "message.max.bytes" in admin.describe_configs([broker])[broker].result(deadline_s())


def test_cluster_describes_itself(admin, broker) -> None:
    described = admin.describe_cluster().result(deadline_s())
    assert [(node.id, node.host, node.port) for node in described.nodes] == [(1, "127.0.0.1", broker.port)]
    assert described.controller.id == 1
    assert described.cluster_id


@pytest.fixture
def transactions(admin, producer_of, topic) -> str:
    """Return a topic with four committed transactions of 500 records, each followed by its marker."""
    create(admin, topic)
    producer = producer_of(transactional_id=f"of-{topic}")
    producer.init_transactions(deadline_s())
    for _ in range(4):
        producer.begin_transaction()
        for number in range(500):
            producer.produce(topic, b"%d" % number)
        producer.commit_transaction(deadline_s())
    return topic


@contextmanager
def group_member(broker: BrokerProcess, topic: str, *, stores: bool) -> Iterator[Consumer]:
    """Yield a consumer with automatic commits; `stores`: the application stores the offsets."""
    settings = {"auto.offset.reset": "earliest", "enable.auto.commit": True, "enable.auto.offset.store": not stores}
    client = Consumer({"bootstrap.servers": broker.bootstrap, "group.id": f"of-{topic}", **settings})
    client.subscribe([topic])
    try:
        yield client
    finally:
        client.close()


def committed_offset(broker: BrokerProcess, topic: str) -> int:
    client = Consumer({"bootstrap.servers": broker.bootstrap, "group.id": f"of-{topic}"})
    try:
        return client.committed([TopicPartition(topic, 0)], deadline_s())[0].offset
    finally:
        client.close()


def test_stored_offsets_are_committed_in_the_middle_of_transactions(broker, transactions) -> None:
    """With librdkafka's own store close() may commit an offset beyond the records that the application has received.

    It drops the queued records, but stores the offset of a marker that ends a response: with Apache Kafka 4.4, too.
    """
    with group_member(broker, transactions, stores=True) as member:
        for message in read(member, 750):
            member.store_offsets(message)
    assert committed_offset(broker, transactions) == 751


def test_the_marker_at_the_end_of_a_topic_is_committed(broker, transactions) -> None:
    with group_member(broker, transactions, stores=False) as member:
        assert len(read(member, 2000)) == 2000

        def is_at_end() -> bool:
            assert member.poll(0.05) is None
            return member.position([TopicPartition(transactions, 0)])[0].offset == 2004

        wait_until(is_at_end, "the position follows the last marker")
    assert committed_offset(broker, transactions) == 2004
