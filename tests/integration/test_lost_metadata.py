"""A broker with a lost metadata file fails to start, or, with an option, serves all records again."""

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from rotunda.broker.metadata.store.metadata_file import metadata_path
from tests.support.broker_process import REPOSITORY, BrokerProcess
from tests.support.deadline import deadline_s
from tests.support.groups.libraries import read_to_end

SETTINGS = {
    "num.network.threads": 1,
    "num.io.threads": 2,
    "offsets.topic.num.partitions": 5,
    "transaction.state.log.num.partitions": 3,
}
PLAIN, COMPACTED = "plain", "compacted"
GROUPS = [f"readers-{number}" for number in range(6)]


@pytest.fixture
def durable(broker_directory: Path) -> Iterator[BrokerProcess]:
    """Yield a broker that holds two topics, the offsets of some groups and a transaction."""
    running = BrokerProcess(broker_directory, SETTINGS, ephemeral=False).start()
    fill(running)
    yield running
    if running.is_running():
        running.stop()


def fill(broker: BrokerProcess) -> None:
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    compacted = {"cleanup.policy": "compact", "retention.ms": "1000"}
    for done in admin.create_topics([NewTopic(PLAIN, 3, 1), NewTopic(COMPACTED, 1, 1, config=compacted)]).values():
        done.result(deadline_s())
    producer = Producer({"bootstrap.servers": broker.bootstrap, "transactional.id": "writer", "acks": "all"})
    producer.init_transactions(deadline_s())
    producer.begin_transaction()
    for number in range(30):
        producer.produce(PLAIN, str(number), partition=number % 3)
        producer.produce(COMPACTED, str(number), key=str(number % 7))
    producer.commit_transaction(deadline_s())
    for number, group in enumerate(GROUPS):
        consumer = Consumer({"bootstrap.servers": broker.bootstrap, "group.id": group})
        consumer.commit(offsets=[TopicPartition(PLAIN, 0, number)], asynchronous=False)
        consumer.close()


def records(broker: BrokerProcess, topic: str, partitions: int) -> list[tuple[int, int, bytes]]:
    """Return partition, offset and value of everything in a topic, in order."""
    found = read_to_end(broker.bootstrap, topic, partitions)
    return sorted((message.partition(), message.offset(), message.value()) for message in found)


def offsets(broker: BrokerProcess) -> list[int]:
    """Return the committed offsets of each group."""
    found = []
    for group in GROUPS:
        consumer = Consumer({"bootstrap.servers": broker.bootstrap, "group.id": group})
        found += [each.offset for each in consumer.committed([TopicPartition(PLAIN, 0)], deadline_s())]
        consumer.close()
    return found


def try_start(broker: BrokerProcess) -> subprocess.CompletedProcess[str]:
    """Start a broker that must fail, and return its output."""
    command = [sys.executable, "-m", "rotunda", "start", "--run-dir", str(broker.run_dir)]
    command += ["--data-dir", str(broker.data_dir), "--set", "listeners=PLAINTEXT://127.0.0.1:0"]
    return subprocess.run(command, cwd=REPOSITORY, capture_output=True, text=True, timeout=deadline_s(60), check=False)


def test_a_broker_without_its_metadata_rejects_to_start_and_can_make_it_again(durable: BrokerProcess) -> None:
    before = [records(durable, PLAIN, 3), records(durable, COMPACTED, 1), offsets(durable)]
    assert before[2] == list(range(len(GROUPS)))
    durable.stop()
    path = metadata_path(durable.data_dir)
    path.unlink()
    refused = try_start(durable)
    assert refused.returncode == 1
    assert str(path) in refused.stderr
    assert "metadata.rebuild=true" in refused.stderr
    assert "Traceback" not in refused.stderr
    durable.settings["metadata.rebuild"] = True
    begin = durable.log_bytes()
    durable.start()
    lines = [line for line in durable.log_since(begin) if "WARN" in line]
    assert any("quotas" in line and "settings" in line for line in lines), "what is lost is said"
    assert any(PLAIN in line for line in lines)
    assert [records(durable, PLAIN, 3), records(durable, COMPACTED, 1), offsets(durable)] == before
    admin = AdminClient({"bootstrap.servers": durable.bootstrap})
    internal = {name: len(each.partitions) for name, each in admin.list_topics(timeout=deadline_s()).topics.items()}
    assert internal == {"__consumer_offsets": 5, "__transaction_state": 3, PLAIN: 3, COMPACTED: 1}
    fill_again(durable)
    # The setting stays harmless where there is nothing to make again.
    durable.stop()
    durable.start()
    assert offsets(durable) == before[2]


def fill_again(broker: BrokerProcess) -> None:
    producer = Producer({"bootstrap.servers": broker.bootstrap, "transactional.id": "writer", "acks": "all"})
    producer.init_transactions(deadline_s())
    producer.begin_transaction()
    producer.produce(PLAIN, "again", partition=0)
    producer.commit_transaction(deadline_s())
    assert records(broker, PLAIN, 3)[10][2] == b"again"
