"""The calls of a producer: their waits and exceptions, and the results of the future and the callback."""

from __future__ import annotations

import socket
import threading
from typing import Any

import pytest
from confluent_kafka.admin import AdminClient, NewTopic

from rotunda.broker.client import Producer
from rotunda.broker.client.errors import (
    BufferExhausted,
    DeliveryTimeout,
    IllegalState,
    InvalidTopic,
    KafkaError,
    ProducerClosed,
    RecordTooLarge,
    SerializationFailed,
)
from rotunda.broker.client.producer.futures import RecordMetadata
from rotunda.broker.client.producer.interceptors import ProducerRecord
from rotunda.broker.client.producer.partitioner import partition_for_key
from rotunda.broker.errors import ConfigError
from tests.support.broker_process import BrokerProcess
from tests.support.deadline import deadline_s, wait_until

PARTITIONS = 5


@pytest.fixture
def made(broker: BrokerProcess, topic: str) -> str:
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    admin.create_topics([NewTopic(topic, PARTITIONS, 1)])[topic].result(deadline_s())
    return topic


def threads_of(client_id: str) -> list[threading.Thread]:
    name = f"kafka-producer-network-thread | {client_id}"
    return [thread for thread in threading.enumerate() if thread.name == name]


class Silent:
    """A listener that never accepts: it counts connection attempts."""

    def __enter__(self) -> Silent:
        self._socket = socket.create_server(("127.0.0.1", 0))
        self._socket.setblocking(False)
        self.address = f"127.0.0.1:{self._socket.getsockname()[1]}"
        return self

    def __exit__(self, *_: object) -> None:
        self._socket.close()

    def has_been_reached(self) -> bool:
        try:
            self._socket.accept()[0].close()
        except BlockingIOError:
            return False
        return True


def test_g01_one_thread_a_producer_named_after_it_and_none_is_left() -> None:
    with (
        Silent() as silent,
        Producer(bootstrap_servers=silent.address, client_id="named", enable_idempotence=False) as producer,
    ):
        assert producer.client_id == "named"
        (thread,) = threads_of("named")
        assert thread.daemon
        producer.close(0)
    assert not thread.is_alive()


def test_g01_a_producer_that_cannot_be_made_leaves_no_thread() -> None:
    for settings in ({"interceptor_classes": [object()]}, {"value_serializer": "no"}, {"partitioner_class": "no"}):
        with pytest.raises(ConfigError):
            Producer(bootstrap_servers="127.0.0.1:1", client_id="unmade", **settings)
    assert threads_of("unmade") == []


def test_g02_a_producer_that_is_made_has_not_spoken_to_the_cluster() -> None:
    """`G02`: it has only the addresses that it was configured with."""
    with Silent() as silent, Producer(bootstrap_servers=silent.address) as producer:
        cluster = producer._core.metadata.fetch()
        assert cluster.is_bootstrap
        assert [f"{node.host}:{node.port}" for node in cluster.nodes.values()] == [silent.address]
        assert list(cluster.topics) == []
        producer.close(0)


def test_g03_errors_of_the_record_are_in_its_future_and_callback(broker, made) -> None:
    told: list[tuple[RecordMetadata, KafkaError | None]] = []
    with Producer(bootstrap_servers=broker.bootstrap, max_request_size=1000) as producer:
        for topic, value, kind in ((made, bytes(1000), RecordTooLarge), ("no/name", b"v", InvalidTopic)):
            future = producer.send(topic, value, on_delivery=lambda *outcome: told.append(outcome))
            assert future.done()
            assert isinstance(future.exception(), kind)
            with pytest.raises(kind):
                future.result()
            metadata, error = told.pop()
            assert (metadata.topic, metadata.offset, error) == (topic, -1, future.exception())


def test_g03_errors_of_the_call_are_raised(broker, made) -> None:
    def fail(_topic: str, data: Any, _headers: Any) -> bytes | None:
        if data is not None:
            raise ZeroDivisionError
        return None

    with Producer(bootstrap_servers=broker.bootstrap, key_serializer=fail) as producer:
        with pytest.raises(SerializationFailed, match="the key of a record"):
            producer.send(made, b"v", key=1)
        with pytest.raises(SerializationFailed, match="type str, and bytes are needed"):
            producer.send(made, "text")
        with pytest.raises(IllegalState, match=r"transactional\.id"):
            producer.begin_transaction()
    with pytest.raises(ProducerClosed):
        producer.send(made, b"v")


def test_serializers_write_the_bytes_of_kafkas(broker, made) -> None:
    forms = {
        "string": ("é", "é".encode()),
        "json": ({"a": [1, None]}, b'{"a":[1,null]}'),
        "org.apache.kafka.common.serialization.IntegerSerializer": (-2, b"\xff\xff\xff\xfe"),
        "long": (1, b"\0\0\0\0\0\0\0\1"),
        "double": (0.5, b"\x3f\xe0" + bytes(6)),
    }
    for name, (value, expected) in forms.items():
        with Producer(bootstrap_servers=broker.bootstrap, value_serializer=name) as producer:
            assert producer._core.value_serializer(made, value, ()) == expected
            assert producer.send(made, value).result(deadline_s()).serialized_value_size == len(expected)
            assert producer.send(made, None).result(deadline_s()).serialized_value_size == -1


class Adds:
    """An interceptor that appends to the value and records its calls."""

    def __init__(self, mark: bytes, seen: list[Any]) -> None:
        self.mark, self.seen = mark, seen

    def on_send(self, record: ProducerRecord) -> ProducerRecord:
        return record._replace(value=record.value + self.mark)

    def on_acknowledgement(self, metadata: RecordMetadata, error: KafkaError | None) -> None:
        self.seen.append((self.mark, metadata.topic, error, threading.current_thread().name))

    def close(self) -> None:
        self.seen.append("closed")


class Fails(Adds):
    """One that fails."""

    def on_send(self, _record: ProducerRecord) -> ProducerRecord:
        raise ValueError("on purpose")


def test_g04_interceptors_are_a_chain_and_one_that_fails_is_passed_over(broker, made, caplog) -> None:
    seen: list[Any] = []
    chain = [Adds(b"1", seen), Fails(b"2", seen), Adds(b"3", seen)]
    with Producer(bootstrap_servers=broker.bootstrap, client_id="chained", interceptor_classes=chain) as producer:
        future = producer.send(made, b"v", on_delivery=lambda _meta, error: seen.append(("callback", error)))
        assert future.result(deadline_s()).serialized_value_size == len(b"v13")
        wait_until(lambda: len(seen) == 4, "interceptors and callback")
        thread = "kafka-producer-network-thread | chained"
        assert seen == [*((mark, made, None, thread) for mark in (b"1", b"2", b"3")), ("callback", None)]
        seen.clear()
        error = producer.send("no/name", b"v").exception()
        assert [each[2] for each in seen] == [error] * 3
        assert [each[1] for each in seen] == ["no/name"] * 3
        seen.clear()
    assert seen == ["closed"] * 3
    assert "on purpose" in caplog.text


def test_g05_g06_the_wait_for_metadata_ends_with_the_missing_names(broker, made) -> None:
    with Silent() as silent, Producer(bootstrap_servers=silent.address, max_block_ms=50) as producer:
        error = producer.send("some-topic", b"v").exception()
        assert isinstance(error, DeliveryTimeout)
        assert "topic some-topic is not in the metadata after 50 ms" in str(error)
        with pytest.raises(DeliveryTimeout, match="some-topic"):
            producer.partitions_for("some-topic")
        wait_until(silent.has_been_reached, "somebody to connect")
    with Producer(bootstrap_servers=broker.bootstrap, max_block_ms=300) as producer:
        error = producer.send(made, b"v", partition=PARTITIONS).exception()
        assert isinstance(error, DeliveryTimeout)
        assert f"partition {PARTITIONS} of topic {made}, which has {PARTITIONS}," in str(error)
        assert [each.partition for each in producer.partitions_for(made)] == list(range(PARTITIONS))


def test_g05_a_close_while_somebody_waits_for_metadata_is_raised() -> None:
    with Silent() as silent:
        producer = Producer(bootstrap_servers=silent.address)
        raised: list[BaseException] = []

        def send() -> None:
            try:
                producer.send("t", b"v")
            except ProducerClosed as error:
                raised.append(error)

        thread = threading.Thread(target=send, daemon=True)
        thread.start()
        wait_until(silent.has_been_reached, "somebody to connect")
        producer.close(0)
        thread.join(deadline_s())
    assert len(raised) == 1


def test_g06_the_wait_for_room_ends_after_max_block_ms(broker, made) -> None:
    with Producer(bootstrap_servers=broker.bootstrap, max_block_ms=200) as producer:
        wait_until(lambda: producer.send(made, b"v").exception(deadline_s()) is None, "metadata")
        pool = producer._core.pool
        wait_until(lambda: pool.available_bytes == pool.total_bytes, "everything to be delivered")
        pool.allocate(pool.available_bytes, 0)  # reserves the room of other records
        error = producer.send(made, b"v").exception(deadline_s())
        assert isinstance(error, BufferExhausted)
        assert "buffer.memory" in str(error)
        pool.deallocate(pool.total_bytes)
        assert producer.send(made, b"v").result(deadline_s()).topic == made


def test_g11_the_partition_is_that_of_the_caller_the_partitioner_or_the_key(broker, made) -> None:
    with Producer(bootstrap_servers=broker.bootstrap) as producer:
        for number in range(20):
            key = b"key %d" % number
            expected = partition_for_key(key, PARTITIONS)
            assert producer.send(made, b"v", key=key).result(deadline_s()).partition == expected
            assert producer.send(made, b"v", key=key, partition=3).result(deadline_s()).partition == 3
        with pytest.raises(IllegalState, match="partition -1"):
            producer.send(made, b"v", partition=-1)
    given = iter([2, -1])
    with Producer(bootstrap_servers=broker.bootstrap, partitioner_class=lambda *_: next(given)) as producer:
        assert producer.send(made, b"v", key=b"k").result(deadline_s()).partition == 2
        with pytest.raises(IllegalState, match="returned -1"):
            producer.send(made, b"v", key=b"k")
    with Producer(
        bootstrap_servers=broker.bootstrap, partitioner_ignore_keys=True, batch_size=0, linger_ms=0
    ) as producer:
        found = {producer.send(made, b"v", key=b"k").result(deadline_s()).partition for _ in range(200)}
        assert len(found) > 1  # with five partitions this fails once in 10**139 runs


def test_g14_round_robin_by_its_name(broker, made) -> None:
    name = "org.apache.kafka.clients.producer.RoundRobinPartitioner"
    with Producer(bootstrap_servers=broker.bootstrap, partitioner_class=name) as producer:
        futures = [producer.send(made, b"v", key=b"same") for _ in range(2 * PARTITIONS)]
        partitions = [future.result(deadline_s()).partition for future in futures]
    assert sorted(partitions) == sorted([*range(PARTITIONS), *range(PARTITIONS)])


def test_g15_size_is_validated_before_anything_is_appended(broker, made) -> None:
    for settings, name in (({"max_request_size": 500}, "max.request.size"), ({"buffer_memory": 500}, "buffer.memory")):
        with Producer(bootstrap_servers=broker.bootstrap, batch_size=100, **settings) as producer:
            assert f"{name}=500" in str(producer.send(made, bytes(450)).exception())
            assert not producer._accumulator.has_incomplete()
            assert producer.send(made, bytes(300)).result(deadline_s()).offset >= 0


def test_g35_flush_sends_lingering_records(broker, made) -> None:
    with Producer(bootstrap_servers=broker.bootstrap, linger_ms=60_000, delivery_timeout_ms=120_000) as producer:
        futures = [producer.send(made, b"v", partition=number % PARTITIONS) for number in range(50)]
        assert not any(future.done() for future in futures)
        producer.flush(deadline_s())
        assert all(future.done() for future in futures)
        assert producer.metrics()["record-send-total"] == 50


def test_g36_close_sends_all_records_and_a_second_one_does_nothing(broker, made) -> None:
    producer = Producer(bootstrap_servers=broker.bootstrap, linger_ms=60_000, delivery_timeout_ms=120_000)
    futures = [producer.send(made, b"v") for _ in range(100)]
    producer.close()
    assert {future.result(0).partition for future in futures} <= set(range(PARTITIONS))
    producer.close()
    producer.close(0)
    for call in (lambda: producer.send(made, b"v"), lambda: producer.partitions_for(made)):
        with pytest.raises(ProducerClosed):
            call()
    with pytest.raises(ValueError, match="negative"):
        producer.close(-1)


def test_g36_close_without_time_fails_the_remaining_records(broker, made) -> None:
    producer = Producer(bootstrap_servers=broker.bootstrap, linger_ms=60_000, delivery_timeout_ms=120_000)
    future = producer.send(made, b"v")
    producer.close(0)
    assert isinstance(future.exception(0), ProducerClosed)
    assert threads_of(producer.client_id) == []


def test_g36_close_from_a_callback_does_not_wait_for_itself(broker, made) -> None:
    producer = Producer(bootstrap_servers=broker.bootstrap)
    producer.send(made, b"v", on_delivery=lambda *_: producer.close())
    (thread,) = threads_of(producer.client_id)
    producer.flush(deadline_s())
    thread.join(deadline_s())
    assert not thread.is_alive()
    producer.close()


def test_a_callback_that_fails_stops_nothing(broker, made, caplog) -> None:
    def fail(*_: object) -> None:
        raise ValueError("on purpose")

    with Producer(bootstrap_servers=broker.bootstrap) as producer:
        producer.send(made, b"v", on_delivery=fail).result(deadline_s())
        assert producer.send(made, b"v").result(deadline_s()).topic == made
    assert "A callback for a delivered record failed" in caplog.text
