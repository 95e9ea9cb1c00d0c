"""Records that no coordinator has written, in the topics that only coordinators should write to.

As in Kafka, a client named like the admin client may write there. Whatever its records, the handlers that replay the
topics have the same state of everything else afterwards.
"""

from __future__ import annotations

import os
import random
import signal
import struct

import pytest
from confluent_kafka import ConsumerGroupTopicPartitions, KafkaError, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient

from rotunda.broker.records.record_batch import batch_headers
from rotunda.broker.records.record_reader import iterate_records
from tests.support.broker_process import BrokerProcess
from tests.support.deadline import deadline_s, wait_until
from tests.support.feeds import mutations, random_seed
from tests.support.groups.libraries import subscriber
from tests.support.record_batches import record_batch
from tests.support.wire_client import WireClient, sized
from tests.support.wire_messages import (
    PRODUCE,
    PRODUCE_VERSION,
    create_topic,
    fetch,
    produce_body,
    read_produce,
)

BROKER_SETTINGS = {"process.restart.limit": 1000}
OFFSETS, TRANSACTIONS = "__consumer_offsets", "__transaction_state"


def commit(broker: BrokerProcess, topic: str, group: str, protocol: str) -> None:
    """Join a group, commit an offset and leave the group without saying so."""
    consumer = subscriber(broker.bootstrap, group, [topic], group_protocol=protocol)
    assert consumer.poll(deadline_s()) is not None
    consumer.commit(offsets=[TopicPartition(topic, 0, 7)], asynchronous=False)
    consumer.unsubscribe()


def transact(broker: BrokerProcess, topic: str) -> None:
    """Commit one transaction."""
    producer = Producer({"bootstrap.servers": broker.bootstrap, "transactional.id": f"id of {topic}"})
    producer.init_transactions(deadline_s())
    producer.begin_transaction()
    producer.produce(topic, b"x")
    producer.commit_transaction(deadline_s())


def committed(broker: BrokerProcess, topic: str, group: str) -> int | None:
    """Return a group's offset; None while its coordinator reads its log."""
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    asked = ConsumerGroupTopicPartitions(group, [TopicPartition(topic, 0)])
    [future] = admin.list_consumer_group_offsets([asked]).values()
    try:
        [partition] = future.result(deadline_s()).topic_partitions
    except KafkaException as error:
        if error.args[0].code() != KafkaError.COORDINATOR_LOAD_IN_PROGRESS:
            raise
        return None
    return int(partition.offset)


def produce_as_admin(wire: WireClient, topic: str, partition: int, batch: bytes) -> int:
    name = b"__admin_client"
    header = struct.pack(">hhih", PRODUCE, PRODUCE_VERSION, 1, len(name)) + name
    wire.send(sized(header + produce_body([(topic, partition, batch)])))
    return read_produce(wire.receive_frame()[4:])[0].error_code


def nonsense(numbers: random.Random, wire: WireClient, topic: str, partition: int) -> list[tuple[bytes, bytes | None]]:
    """Return records like those of a partition, with bytes changed, and with unknown keys."""
    data = fetch(wire, topic, partition, 0).records
    batches = [data[at : at + header.size_bytes] for at, header in batch_headers(data) if not header.is_control]
    found = [record for batch in batches for record in iterate_records(batch) if record.key]
    changed: list[tuple[bytes, bytes | None]] = [(b"", b""), (b"\0", b"x"), (b"\x7f\xff" + bytes(9), b"x")]
    for record in found:
        key, value = record.key or b"", record.value
        changed += [(each, value) for each in mutations(key, numbers.randrange(2**31), 15)]
        # The records that count are not to be replaced: their groups get another name.
        other = key[:4] + b"Z" + key[5:] if len(key) > 5 else key
        changed += [(other, each) for each in mutations(value or b"", numbers.randrange(2**31), 25)]
    truth = {record.key for record in found}
    return [(key, value) for key, value in changed if key not in truth]


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_acknowledged_state_survives_foreign_records(broker, wire, topic, protocol) -> None:
    seed = random_seed()
    numbers = random.Random(seed)
    create_topic(wire, topic)
    transact(broker, topic)
    group = f"group of {topic}"
    commit(broker, topic, group, protocol)
    written = 0
    for internal in (OFFSETS, TRANSACTIONS):
        for partition in range(2):
            records = nonsense(numbers, wire, internal, partition)
            written += len(records)
            for first in range(0, len(records), 40):
                part = records[first : first + 40]
                batch = record_batch([value for _, value in part], keys=[key for key, _ in part])
                assert produce_as_admin(wire, internal, partition, batch) == 0, f"seed {seed}"
    assert written > 100
    position = broker.log_bytes()
    before = {row["pid"]: row["restarts"] for row in broker.processes("handler")}
    for pid in before:
        os.kill(pid, signal.SIGKILL)
    wait_until(
        lambda: not before.keys() & {row["pid"] for row in broker.processes("handler") if row["state"] == "running"},
        "new handlers",
    )
    wait_until(lambda: committed(broker, topic, group) == 7, f"the offset that was committed; seed {seed}")
    transact(broker, topic)
    commit(broker, topic, f"another {group}", protocol)
    assert [row["restarts"] for row in broker.processes("handler")] == [n + 1 for n in before.values()], f"seed {seed}"
    lines = [line for line in broker.log_since(position) if "invalid record" in line]
    assert lines, f"seed {seed}"
    assert len(lines) <= 4
    assert not [line for line in broker.log_since(position) if "Traceback" in line], f"seed {seed}"
