"""Transactions with an unmodified client: isolation, fencing, timeouts, and exactly-once while processes are killed.

users.md row 11: each fault of other servers has a test of its name here.
"""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Sequence

import pytest
from confluent_kafka import Consumer, KafkaException, Message, Producer, TopicPartition

from rotunda.broker.protocol import codec
from rotunda.broker.protocol.api_keys import ApiKey
from tests.support.broker_process import BrokerProcess
from tests.support.deadline import deadline_s, wait_until
from tests.support.groups.libraries import read_to_end
from tests.support.wire_client import WireClient
from tests.support.wire_messages import create_topic

BROKER_SETTINGS = {
    "process.restart.limit": 1_000_000,
    "transaction.max.timeout.ms": 100_000,
    "transaction.abort.timed.out.transaction.cleanup.interval.ms": 50,
}
PARTITIONS = 4
KILLING_S = 6.0


def transactional(broker: BrokerProcess, transactional_id: str, **settings: object) -> Producer:
    """Return a producer that has its epoch."""
    producer = Producer(
        {"bootstrap.servers": broker.bootstrap, "transactional.id": transactional_id, "linger.ms": 0, **settings}
    )
    producer.init_transactions(deadline_s())
    return producer


def write(producer: Producer, topic: str, values: Sequence[bytes]) -> None:
    """Write one value after the other to all partitions, and wait until they are committed."""
    for number, value in enumerate(values):
        producer.produce(topic, value, partition=number % PARTITIONS)
    assert producer.flush(deadline_s()) == 0


def read_all(broker: BrokerProcess, topic: str, isolation: str = "read_committed") -> list[bytes]:
    """Return every value that a consumer of that isolation gets."""
    return [message.value() for message in read_to_end(broker.bootstrap, topic, PARTITIONS, isolation=isolation)]


def test_aborted_records_are_never_visible(broker, wire, topic) -> None:
    """users.md row 11: to read_committed consumers, that is; the others see them."""
    create_topic(wire, topic, PARTITIONS)
    producer = transactional(broker, topic)
    committed: list[bytes] = []
    everything: list[bytes] = []
    for number in range(9):
        values = [b"%d.%d" % (number, n) for n in range(8)]
        producer.begin_transaction()
        write(producer, topic, values)
        everything += values
        if number % 3:
            producer.commit_transaction(deadline_s())
            committed += values
        else:
            producer.abort_transaction(deadline_s())
        if number in (0, 1, 8):
            assert sorted(read_all(broker, topic)) == sorted(committed)
    assert sorted(read_all(broker, topic, "read_uncommitted")) == sorted(everything)


def test_an_open_transaction_is_not_visible_and_holds_back_what_follows(broker, wire, topic) -> None:
    """users.md row 11: the last stable offset."""
    create_topic(wire, topic, PARTITIONS)
    producer, other = transactional(broker, topic), transactional(broker, f"{topic}-other")
    producer.begin_transaction()
    write(producer, topic, [b"open"] * PARTITIONS)
    other.begin_transaction()
    write(other, topic, [b"behind"] * PARTITIONS)
    other.commit_transaction(deadline_s())
    assert read_all(broker, topic) == []
    producer.commit_transaction(deadline_s())
    assert sorted(read_all(broker, topic)) == [b"behind"] * PARTITIONS + [b"open"] * PARTITIONS


def test_transaction_timeout_is_validated(broker) -> None:
    """users.md row 11: INVALID_TRANSACTION_TIMEOUT (50) above transaction.max.timeout.ms and below 1."""
    with WireClient(broker.port) as client:

        def coordinator_is_there() -> bool:
            found = call(client, ApiKey.FIND_COORDINATOR, 4, {"key_type": 1, "coordinator_keys": ["timeouts"]})
            return int(found.coordinators[0].error_code) == 0

        wait_until(coordinator_is_there, "a coordinator")
        for timeout_ms, error in ((100_001, 50), (0, 50), (-1, 50), (100_000, 0)):
            values = {"transactional_id": "timeouts", "transaction_timeout_ms": timeout_ms}
            answers = [call(client, ApiKey.INIT_PRODUCER_ID, version, values).error_code for version in (0, 1, 4)]
            assert [int(answer) for answer in answers] == [error] * 3


def test_end_txn_and_the_others_are_served_in_kafkas_versions(broker) -> None:
    """users.md row 11: EndTxn 0-5, and the other APIs of transactions."""
    with WireClient(broker.port) as client:
        answer = call(client, ApiKey.API_VERSIONS, 0, {})
    served = {int(each.api_key): (each.min_version, each.max_version) for each in answer.api_keys}
    keys = (ApiKey.INIT_PRODUCER_ID, ApiKey.ADD_PARTITIONS_TO_TXN, ApiKey.ADD_OFFSETS_TO_TXN, ApiKey.END_TXN)
    assert [served[key] for key in keys] == [(0, 5), (0, 5), (0, 4), (0, 5)]
    keys = (ApiKey.WRITE_TXN_MARKERS, ApiKey.DESCRIBE_PRODUCERS, ApiKey.DESCRIBE_TRANSACTIONS, ApiKey.LIST_TRANSACTIONS)
    assert [served[key] for key in keys] == [(1, 2), (0, 0), (0, 0), (0, 2)]


def test_a_second_producer_fences_the_first(broker, wire, topic) -> None:
    create_topic(wire, topic, PARTITIONS)
    first = transactional(broker, topic)
    first.begin_transaction()
    write(first, topic, [b"first"] * PARTITIONS)
    second = transactional(broker, topic)
    with pytest.raises(KafkaException) as raised:
        first.commit_transaction(deadline_s())
    assert raised.value.args[0].fatal()
    second.begin_transaction()
    write(second, topic, [b"second"] * PARTITIONS)
    second.commit_transaction(deadline_s())
    assert read_all(broker, topic) == [b"second"] * PARTITIONS
    del first


def test_a_silent_producer_is_aborted_and_its_readers_go_on(broker, wire, topic) -> None:
    create_topic(wire, topic, PARTITIONS)
    silent = transactional(broker, topic, **{"transaction.timeout.ms": 4000, "message.timeout.ms": 4000})
    silent.begin_transaction()
    write(silent, topic, [b"silent"] * PARTITIONS)
    other = Producer({"bootstrap.servers": broker.bootstrap})
    write(other, topic, [b"other"] * PARTITIONS)
    wait_until(lambda: read_all(broker, topic) == [b"other"] * PARTITIONS, "the transaction aborted")
    with pytest.raises(KafkaException):
        silent.commit_transaction(deadline_s())
    # It would complain when the broker stops.
    del silent


class Etl(threading.Thread):
    """Copies some partitions of a topic, offsets and records in one transaction, until it has copied all of them."""

    def __init__(self, broker: BrokerProcess, names: tuple[str, str, str], partitions: Sequence[int], wanted: int):
        super().__init__()
        self.name, self.source, self.sink = names
        self.partitions = partitions
        self.wanted = wanted
        self.aborts = 0
        self.failure: BaseException | None = None
        self._broker = broker

    def run(self) -> None:
        """Copy; a fatal error is stored in ``failure``."""
        try:
            self._copy_all()
        except BaseException as failure:
            self.failure = failure

    def _copy_all(self) -> None:
        consumer = Consumer(
            {
                "bootstrap.servers": self._broker.bootstrap,
                "group.id": self.name,
                "isolation.level": "read_committed",
                "enable.auto.commit": False,
            }
        )
        producer = transactional(self._broker, self.name)
        self._rewind(consumer)
        copied = 0
        deadline = time.monotonic() + 2 * deadline_s()
        while copied < self.wanted:
            assert time.monotonic() < deadline, f"{self.name}: {copied} of {self.wanted} copied"
            messages = [m for m in consumer.consume(10, 0.1) if m.error() is None]
            if not messages:
                continue
            if self._copy(consumer, producer, messages):
                copied += len(messages)
            else:
                self.aborts += 1
                self._rewind(consumer)
        consumer.close()

    def _copy(self, consumer: Consumer, producer: Producer, messages: list[Message]) -> bool:
        try:
            producer.begin_transaction()
            for message in messages:
                producer.produce(self.sink, message.value(), partition=message.partition())
            positions = consumer.position(consumer.assignment())
            producer.send_offsets_to_transaction(positions, consumer.consumer_group_metadata(), deadline_s())
            producer.commit_transaction(deadline_s())
        except KafkaException as error:
            if not error.args[0].txn_requires_abort():
                raise
            producer.abort_transaction(deadline_s())
            return False
        return True

    def _rewind(self, consumer: Consumer) -> None:
        places = [TopicPartition(self.source, partition) for partition in self.partitions]
        committed = consumer.committed(places, deadline_s())
        consumer.assign([TopicPartition(p.topic, p.partition, max(0, p.offset)) for p in committed])


def test_exactly_once_while_processes_are_killed(broker, wire, topic, chance) -> None:
    """Two copiers, committed offsets and records in one transaction; handlers and the controller die all the time."""
    sink = f"{topic}-copy"
    create_topic(wire, topic, PARTITIONS)
    create_topic(wire, sink, PARTITIONS)
    values = [b"%d" % number for number in range(2400)]
    plain = Producer({"bootstrap.servers": broker.bootstrap})
    write(plain, topic, values)
    del plain
    copiers = [Etl(broker, (f"{topic}-{n}", topic, sink), range(n, PARTITIONS, 2), len(values) // 2) for n in range(2)]
    for copier in copiers:
        copier.start()
    kills = 0
    end = time.monotonic() + KILLING_S
    while time.monotonic() < end and any(copier.is_alive() for copier in copiers):
        time.sleep(chance.random() * 0.4)
        victims = [row["pid"] for row in broker.processes() if row["role"] in ("handler", "controller") and row["pid"]]
        try:
            os.kill(chance.choice(victims), signal.SIGKILL)
        except ProcessLookupError:
            continue
        kills += 1
    for copier in copiers:
        copier.join(2 * deadline_s() + 10)
        assert not copier.is_alive(), f"{copier.name} hangs"
        if copier.failure is not None:
            raise copier.failure
    copied = read_all(broker, sink)
    print(f"{kills} kills, {sum(copier.aborts for copier in copiers)} aborts")
    assert len(copied) == len(values)
    assert sorted(copied, key=int) == values


def call(client: WireClient, api_key: ApiKey, version: int, values: dict[str, object]) -> object:
    """Send one request made by kio and return its response, decoded by kio."""
    frame = codec.encode_request(api_key, version, 1, "test", values)
    client.send(frame)
    answer = client.receive_frame()
    return codec.decode_response(api_key, version, answer, 0, len(answer))
