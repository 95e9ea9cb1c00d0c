"""Transactions that a power loss leaves open in a partition, and that no coordinator has any more."""

import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic

from tests.support.broker_process import BrokerProcess
from tests.support.deadline import deadline_s, wait_until
from tests.support.groups.libraries import read_to_end

SETTINGS = {"num.network.threads": 1, "num.io.threads": 2, "transaction.state.log.num.partitions": 2}
TOPIC = "orders"


@pytest.fixture
def durable(broker_directory: Path) -> Iterator[BrokerProcess]:
    """Yield a broker that has died in the middle of a transaction."""
    running = BrokerProcess(broker_directory, SETTINGS, ephemeral=False).start()
    admin = AdminClient({"bootstrap.servers": running.bootstrap})
    [created] = admin.create_topics([NewTopic(TOPIC, 1, 1)]).values()
    created.result(deadline_s())
    producer = Producer({"bootstrap.servers": running.bootstrap, "transactional.id": "writer"})
    producer.init_transactions(deadline_s())
    producer.begin_transaction()
    producer.produce(TOPIC, "open")
    assert not producer.flush(deadline_s())
    running.kill_everything()
    running.settings["transaction.max.timeout.ms"] = 1000
    yield running
    if running.is_running():
        running.stop()


def lose_coordinators_records(data_dir: Path) -> None:
    for path in data_dir.glob("__transaction_state-*/*.log"):
        path.write_bytes(b"")


def produce(broker: BrokerProcess, value: str) -> None:
    producer = Producer({"bootstrap.servers": broker.bootstrap})
    producer.produce(TOPIC, value)
    assert not producer.flush(deadline_s())


def committed(broker: BrokerProcess) -> list[bytes | None]:
    return [message.value() for message in read_to_end(broker.bootstrap, TOPIC, 1)]


def lines(broker: BrokerProcess, position: int, text: str) -> Callable[[], list[str]]:
    return lambda: [line for line in broker.log_since(position) if text in line]


def test_a_transaction_that_no_coordinator_knows_is_aborted(durable: BrokerProcess) -> None:
    lose_coordinators_records(durable.data_dir)
    position = durable.log_bytes()
    durable.start()
    assert lines(durable, position, f"{TOPIC}-0: last stable offset 0")()
    produce(durable, "later")
    [line] = wait_until(lines(durable, position, "unknown to all coordinators"), "the transaction is aborted")
    assert " WARNING " in line
    assert f"{TOPIC}-0" in line
    wait_until(lambda: committed(durable) == [b"later"], "what follows it can be read")


def test_a_transaction_that_its_coordinator_knows_stays_open(durable: BrokerProcess) -> None:
    """However long ago it began: the coordinator ends it when its own timeout has passed."""
    position = durable.log_bytes()
    durable.start()
    produce(durable, "later")
    deadline = time.monotonic() + 5
    while time.monotonic() < deadline:
        assert committed(durable) == []
    assert not lines(durable, position, "unknown to all coordinators")()
