"""An unmodified kafka-python 3 client against a real broker."""

import time
from collections.abc import Callable, Iterator

import pytest
from kafka import KafkaConsumer, KafkaProducer, TopicPartition, errors
from kafka.admin import KafkaAdminClient

from tests.support.broker_process import BrokerProcess
from tests.support.deadline import deadline_s

pytestmark = pytest.mark.walk
# kafka-python brings gzip; the other codecs need packages of its extras.
#: Recent, so that retention leaves the records alone.
BASE_MS = time.time_ns() // 1_000_000 - 60_000


@pytest.fixture
def admin(broker: BrokerProcess) -> Iterator[KafkaAdminClient]:
    """Yield an admin client."""
    client = KafkaAdminClient(bootstrap_servers=broker.bootstrap)
    yield client
    client.close()


@pytest.fixture
def producer_of(broker: BrokerProcess) -> Iterator[Callable[..., KafkaProducer]]:
    """Yield a function that makes producers; they are closed at the end."""
    made: list[KafkaProducer] = []

    def make(**settings: object) -> KafkaProducer:
        made.append(KafkaProducer(bootstrap_servers=broker.bootstrap, **settings))
        return made[-1]

    yield make
    for producer in made:
        producer.close(timeout=deadline_s())


@pytest.fixture
def consumer(broker: BrokerProcess) -> Iterator[KafkaConsumer]:
    """Yield a consumer without a group."""
    client = KafkaConsumer(
        bootstrap_servers=broker.bootstrap,
        auto_offset_reset="none",
        consumer_timeout_ms=deadline_s() * 1000,
        allow_auto_create_topics=False,
    )
    yield client
    client.close()


def create(admin: KafkaAdminClient, topic: str, partitions: int = 1, **configs: str) -> None:
    settings = {key.replace("_", "."): value for key, value in configs.items()}
    options = {"num_partitions": partitions, "replication_factor": 1, "configs": settings}
    admin.create_topics({topic: options}, wait_for_metadata=True)


def read(consumer: KafkaConsumer, count: int) -> list:
    """Read exactly `count` records."""
    records = [record for _, record in zip(range(count), consumer, strict=False)]
    assert len(records) == count
    return records


@pytest.mark.parametrize(
    ("compression", "acks"), [(None, 0), ("gzip", 1), ("snappy", "all"), ("lz4", 1), ("zstd", "all")]
)
def test_records_are_read_as_written(admin, producer_of, consumer, topic, compression, acks) -> None:
    create(admin, topic)
    producer = producer_of(acks=acks, compression_type=compression, linger_ms=5, enable_idempotence=False)
    sent = []
    for number in range(200):
        key = None if number % 3 == 0 and number % 50 != 49 else f"key-{number}".encode()
        value = None if number % 50 == 49 else f"value-{number}-".encode() * (number % 7)
        headers = [("one", b"1"), ("one", f"{number}".encode())] if number % 2 else []
        producer.send(topic, value, key, headers, partition=0, timestamp_ms=BASE_MS + number)
        sent.append((number, key, value, headers, BASE_MS + number))
    producer.flush(deadline_s())
    consumer.assign([TopicPartition(topic, 0)])
    consumer.seek(TopicPartition(topic, 0), 0)
    got = [(r.offset, r.key, r.value, list(r.headers), r.timestamp) for r in read(consumer, 200)]
    assert got == sent


def test_idempotent_producer_writes_every_partition_in_order(admin, producer_of, consumer, topic) -> None:
    create(admin, topic, 3)
    producer = producer_of(enable_idempotence=True)
    futures = [producer.send(topic, str(n).encode(), partition=n % 3) for n in range(900)]
    producer.flush(deadline_s())
    assert [future.get(deadline_s()).offset for future in futures] == [n // 3 for n in range(900)]
    consumer.assign([TopicPartition(topic, index) for index in range(3)])
    consumer.seek_to_beginning()
    found: dict[int, list[int]] = {0: [], 1: [], 2: []}
    for record in read(consumer, 900):
        found[record.partition].append(int(record.value))
    assert found == {index: list(range(index, 900, 3)) for index in range(3)}


def test_positions_are_found_and_deleted_ones_are_out_of_range(admin, producer_of, consumer, topic) -> None:
    create(admin, topic)
    producer = producer_of()
    for number in range(50):
        producer.send(topic, str(number).encode(), partition=0, timestamp_ms=BASE_MS + 10 * number)
    producer.flush(deadline_s())
    partition = TopicPartition(topic, 0)
    consumer.assign([partition])
    consumer.seek(partition, 42)
    assert read(consumer, 1)[0].value == b"42"
    for wanted_ms, offset in ((BASE_MS - 1, 0), (BASE_MS + 250, 25), (BASE_MS + 251, 26)):
        found = consumer.offsets_for_times({partition: wanted_ms})[partition]
        assert (found.offset, found.timestamp) == (offset, BASE_MS + 10 * offset)
    assert consumer.offsets_for_times({partition: BASE_MS + 491})[partition] is None
    assert consumer.beginning_offsets([partition]) == {partition: 0}
    assert consumer.end_offsets([partition]) == {partition: 50}
    admin.delete_records({partition: 6})
    assert consumer.beginning_offsets([partition]) == {partition: 6}
    for offset in (0, 1000):
        consumer.seek(partition, offset)
        with pytest.raises(errors.OffsetOutOfRangeError):
            consumer.poll(deadline_s() * 1000)


def test_topic_life_cycle(admin, topic) -> None:
    create(admin, topic, 2)
    assert topic in admin.list_topics()
    described = admin.describe_topics([topic])[0]
    assert len(described["partitions"]) == 2
    admin.create_partitions({topic: 4})
    assert len(admin.describe_topics([topic])[0]["partitions"]) == 4
    admin.delete_topics([topic])
    assert topic not in admin.list_topics()
