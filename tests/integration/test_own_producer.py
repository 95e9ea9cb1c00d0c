"""Our own producer against our broker while it restarts, read back by librdkafka with read_committed."""

from __future__ import annotations

import random
import threading
from collections import defaultdict
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from confluent_kafka import Consumer
from confluent_kafka import TopicPartition as Place

from ops.free_ports import free_ports
from rotunda.broker.client import Producer
from rotunda.broker.client.errors import KafkaError
from tests.integration.test_exactness import BROKER_SETTINGS, PARTITIONS
from tests.support.broker_process import BrokerProcess

END_SECONDS = 90.0


def settings_of(bootstrap: str, **more: object) -> dict[str, object]:
    return {
        "bootstrap.servers": bootstrap,
        "linger.ms": 1,
        "reconnect.backoff.ms": 10,
        "reconnect.backoff.max.ms": 200,
        "retry.backoff.ms": 20,
        **more,
    }


def committed_values(bootstrap: str, topic: str) -> dict[int, list[bytes]]:
    """Return the records that librdkafka reads with read_committed, by partition."""
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "reader",
            "isolation.level": "read_committed",
            "enable.auto.commit": False,
            "enable.partition.eof": True,
        }
    )
    consumer.assign([Place(topic, partition, 0) for partition in range(PARTITIONS)])
    found: dict[int, list[bytes]] = defaultdict(list)
    ended: set[int] = set()
    while len(ended) < PARTITIONS:
        for message in consumer.consume(500, 0.2):
            if message.error() is None:
                found[message.partition()].append(message.value())
            else:
                ended.add(message.partition())
    consumer.close()
    return found


@dataclass
class IdempotentLoad:
    """Numbers to all partitions, in bursts; each must be acknowledged."""

    bootstrap: str
    topic: str
    chance: random.Random
    sent: dict[int, list[bytes]] = field(default_factory=lambda: defaultdict(list))

    def run(self, stop: threading.Event) -> None:
        with Producer(settings_of(self.bootstrap)) as producer:
            futures = []
            number = 0
            while not stop.wait(self.chance.uniform(0, 0.01)):
                for _ in range(20):
                    partition, value = number % PARTITIONS, b"%d" % number
                    self.sent[partition].append(value)
                    futures.append(producer.send(self.topic, value, partition=partition))
                    number += 1
            producer.flush()
            assert [future.exception(END_SECONDS) for future in futures] == [None] * len(futures)
            print(f"{number} records, metrics {producer.metrics()['record-retry-total']:.0f} retries")


@dataclass
class TransactionalLoad:
    """Transactions over all partitions; some are aborted. Readers must see the outcomes that its calls report."""

    bootstrap: str
    topic: str
    chance: random.Random
    name: str
    committed: list[bytes] = field(default_factory=list)
    aborted: list[bytes] = field(default_factory=list)

    def run(self, stop: threading.Event) -> None:
        with Producer(settings_of(self.bootstrap, **{"transactional.id": self.name})) as producer:
            producer.init_transactions()
            number = 0
            while not stop.is_set():
                values = [b"%s:%d:%d" % (self.name.encode(), number, index) for index in range(20)]
                (self.committed if self._transact(producer, values) else self.aborted).extend(values)
                number += 1
            print(f"{number} transactions, {len(self.aborted) // 20} aborted")

    def _transact(self, producer: Producer, values: list[bytes]) -> bool:
        producer.begin_transaction()
        for index, value in enumerate(values):
            producer.send(self.topic, value, partition=index % PARTITIONS)
        if self.chance.random() < 0.2:
            producer.abort_transaction()
            return False
        try:
            producer.commit_transaction()
        except KafkaError as failure:
            print(f"aborted after {failure!r}")
            producer.abort_transaction()
            return False
        return True


def check(read: dict[int, list[bytes]], plain: IdempotentLoad, transactional: TransactionalLoad) -> None:
    """Check that committed records are read whole, once and in order, and aborted ones are not read."""
    for partition in range(PARTITIONS):
        assert [value for value in read[partition] if b":" not in value] == plain.sent[partition]
        own = [value for value in transactional.committed if int(value.rsplit(b":", 1)[1]) % PARTITIONS == partition]
        assert [value for value in read[partition] if b":" in value] == own


@pytest.mark.slow
def test_a_restart_of_the_broker_loses_and_doubles_nothing(tmp_path: Path, chance) -> None:
    """The whole broker ends and restarts at the same address while both kinds of producer write."""
    [port] = free_ports(1)
    settings = {**BROKER_SETTINGS, "listeners": f"PLAINTEXT://127.0.0.1:{port}"}
    broker = BrokerProcess(tmp_path, settings, ephemeral=False).start()
    try:
        assert broker.command("topic", "create", "restarts", "--partitions", str(PARTITIONS)).returncode == 0
        plain = IdempotentLoad(broker.bootstrap, "restarts", chance)
        transactional = TransactionalLoad(broker.bootstrap, "restarts", chance, "restarts")
        stop = threading.Event()
        threads = [threading.Thread(target=load.run, args=(stop,)) for load in (plain, transactional)]
        for thread in threads:
            thread.start()
        for _ in range(3):
            stop.wait(1.0)
            broker.stop()
            broker.start()
        stop.wait(1.0)
        stop.set()
        for thread in threads:
            thread.join(END_SECONDS)
            assert not thread.is_alive()
        read = committed_values(broker.bootstrap, "restarts")
    finally:
        broker.stop()
    check(read, plain, transactional)
