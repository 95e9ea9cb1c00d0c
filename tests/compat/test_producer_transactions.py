"""Our producer's transactions on both brokers, read back by Java with read_committed, while processes of ours die."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from confluent_kafka.admin import AdminClient, NewTopic

from rotunda.broker.client import Producer
from rotunda.broker.client.errors import ProducerFenced
from rotunda.broker.client.producer.transactions.transaction_state import ConsumerGroupMetadata, OffsetAndMetadata
from rotunda.broker.client.topic_partition import TopicPartition
from tests.compat.dying_brokers import STRIKES, DyingBroker, DyingRotunda
from tests.compat.test_producer import java_reads
from tests.support.deadline import deadline_s

pytestmark = [pytest.mark.slow, pytest.mark.needs("kafka")]

PARTITIONS = 3
TRANSACTIONS = STRIKES + 4
RECORDS = 30
#: The consumer prints other lines on its standard output too.
VALUE = re.compile(r"(\d+|last) \d+|of .*")


def test_committed_transactions_are_read_and_aborted_ones_are_not(dying: DyingBroker, tmp_path: Path) -> None:
    """Both ends, offsets of a group, and a producer that is fenced by another of the same transactional id.

    Every process of ours dies meanwhile. Kafka is not killed: killed just after a commit, 4.3 may complete the
    transaction without its markers after its restart, and the next abort includes its records, with confluent-kafka
    too.
    """
    strike = dying.strike if isinstance(dying, DyingRotunda) else lambda: None
    admin = AdminClient({"bootstrap.servers": dying.address})
    admin.create_topics([NewTopic("transfers", PARTITIONS, 1)])["transfers"].result(deadline_s())
    settings = {"bootstrap.servers": dying.address, "transactional.id": "transfers", "batch.size": 300}
    place = TopicPartition("transfers", 0)
    committed: list[str] = []
    first = Producer(settings)
    first.init_transactions()
    for number in range(TRANSACTIONS):
        first.begin_transaction()
        values = [f"{number} {index}" for index in range(RECORDS)]
        for index, value in enumerate(values):
            first.send("transfers", value.encode(), partition=index % PARTITIONS)
            if index == RECORDS // 2:
                strike()
        if number % 3:
            first.send_offsets_to_transaction({place: OffsetAndMetadata(number)}, ConsumerGroupMetadata("readers"))
            first.commit_transaction()
            committed += values
        else:
            first.flush()
            first.abort_transaction()
    first.begin_transaction()
    first.send("transfers", b"of a zombie", partition=0).result(deadline_s())
    with Producer(settings) as second:
        second.init_transactions()
        second.begin_transaction()
        for partition in range(PARTITIONS):
            second.send("transfers", f"last {partition}".encode(), partition=partition)
            committed.append(f"last {partition}")
        second.commit_transaction()
    with pytest.raises(ProducerFenced):
        first.commit_transaction()
    first.close()
    # With a record too many the last of a partition would not be among them.
    arguments = ["--bootstrap-server", dying.address, "--topic", "transfers", "--isolation-level", "read_committed"]
    lines = java_reads([*arguments, "--max-messages", str(len(committed))], tmp_path, strike)
    read = [line for line in lines if VALUE.fullmatch(line)]
    assert sorted(read) == sorted(committed)
    for partition in range(PARTITIONS):
        own = [value for value in committed if int(value.split()[1]) % PARTITIONS == partition]
        assert [value for value in read if value in own] == own
