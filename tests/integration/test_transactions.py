"""Transactions with an unmodified client: isolation, fencing, timeouts, and exactly-once while processes are killed.

users.md row 11: each fault of other servers has a test of its name here.
"""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Sequence

from confluent_kafka import Consumer, KafkaException, Message, Producer, TopicPartition

from tests.support.broker_process import BrokerProcess
from tests.support.deadline import deadline_s
from tests.support.groups.libraries import read_to_end
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
