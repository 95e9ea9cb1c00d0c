"""Groups of unmodified clients and their administration against a real broker."""

from __future__ import annotations

import asyncio
import gc
import warnings
from collections.abc import Iterator
from contextlib import closing

import aiokafka
import kafka
import pytest
from aiokafka.structs import OffsetAndMetadata
from confluent_kafka import Consumer, ConsumerGroupState, ConsumerGroupTopicPartitions, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic
from kafka.admin import KafkaAdminClient

from tests.support.broker_process import BrokerProcess
from tests.support.deadline import deadline_s, wait_until
from tests.support.groups.libraries import subscriber

pytestmark = pytest.mark.filterwarnings("ignore:unclosed <socket:ResourceWarning")

PARTITIONS = 4
RECORDS = 40


@pytest.fixture(autouse=True, scope="module")
def _sockets() -> Iterator[None]:
    """Close the sockets that kafka-python leaves to the garbage collector: connections that it gave up under load."""
    yield
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ResourceWarning)
        gc.collect()


@pytest.fixture
def filled(broker: BrokerProcess, admin: AdminClient, topic: str) -> str:
    """Return a topic with as many records in each partition."""
    admin.create_topics([NewTopic(topic, PARTITIONS)])[topic].result(deadline_s())
    producer = Producer({"bootstrap.servers": broker.bootstrap})
    for number in range(RECORDS):
        producer.produce(topic, b"%d" % number, partition=number % PARTITIONS)
    assert producer.flush(deadline_s()) == 0
    return topic


class Members:
    """librdkafka consumers of one group that are polled in turn."""

    def __init__(self, broker: BrokerProcess, topic: str) -> None:
        self._bootstrap = broker.bootstrap
        self._topic = topic
        self.group = f"group-{topic}"
        self.consumers: list[Consumer] = []

    def add(self, **settings: object) -> Consumer:
        """Subscribe another consumer."""
        consumer = subscriber(self._bootstrap, self.group, [self._topic], heartbeat_interval_ms=200, **settings)
        self.consumers.append(consumer)
        return consumer

    def poll(self) -> list[bytes]:
        """Return the available records."""
        found = [message for consumer in self.consumers for message in consumer.consume(100, 0.05)]
        assert not [message.error() for message in found if message.error()]
        return [message.value() or b"" for message in found]

    def shares(self) -> list[int]:
        """Return how many partitions each has."""
        self.poll()
        return sorted(len(consumer.assignment()) for consumer in self.consumers)

    def close(self) -> None:
        """Close all consumers."""
        for consumer in self.consumers:
            consumer.close()
        self.consumers = []


@pytest.fixture
def members(broker: BrokerProcess, filled: str) -> Iterator[Members]:
    made = Members(broker, filled)
    yield made
    made.close()


def read_all(members: Members) -> None:
    seen: set[bytes] = set()

    def everything() -> bool:
        seen.update(members.poll())
        return len(seen) == RECORDS

    wait_until(everything, "all records")


def test_partitions_are_shared_and_reassigned(members: Members) -> None:
    """Users row 15: with the settings of a broker of one's own a group is ready in a moment."""
    for count, expected in ((1, [4]), (2, [2, 2]), (4, [1, 1, 1, 1])):
        while len(members.consumers) < count:
            members.add()
        wait_until(lambda expected=expected: members.shares() == expected, f"shares {expected}")
    members.consumers.pop().close()
    wait_until(lambda: members.shares() == [1, 1, 2], "what the one that left had")


def test_offsets_outlive_the_group(members: Members, filled: str) -> None:
    """Users row 7: with their metadata."""
    members.add()
    read_all(members)
    wanted = [TopicPartition(filled, index, 10, f"note {index}") for index in range(PARTITIONS)]
    members.consumers[0].commit(offsets=wanted, asynchronous=False)
    members.close()
    consumer = members.add()
    found = consumer.committed([TopicPartition(filled, index) for index in range(PARTITIONS)], 60)
    assert [(each.offset, each.metadata) for each in found] == [(10, f"note {index}") for index in range(PARTITIONS)]
    wait_until(lambda: members.shares() == [PARTITIONS], "all partitions")
    assert members.poll() == []


def test_groups_are_listed_described_altered_and_deleted(members: Members, admin: AdminClient, filled: str) -> None:
    """I15, I16, I42."""
    members.add(client_id="reader")
    read_all(members)
    listed = {each.group_id: each.state for each in admin.list_consumer_groups().result(deadline_s()).valid}
    assert listed[members.group] is ConsumerGroupState.STABLE
    empty = admin.list_consumer_groups(states={ConsumerGroupState.EMPTY}).result(deadline_s()).valid
    assert members.group not in {each.group_id for each in empty}
    described = admin.describe_consumer_groups([members.group])[members.group].result(deadline_s())
    assert (described.state, described.partition_assignor) == (ConsumerGroupState.STABLE, "range")
    [member] = described.members
    assert (member.client_id, len(member.assignment.topic_partitions)) == ("reader", PARTITIONS)
    with pytest.raises(Exception, match=r"not empty|NON_EMPTY"):
        admin.delete_consumer_groups([members.group])[members.group].result(deadline_s())
    members.close()
    wanted = ConsumerGroupTopicPartitions(members.group, [TopicPartition(filled, 1, 3)])
    admin.alter_consumer_group_offsets([wanted])[members.group].result(deadline_s())
    asked = [ConsumerGroupTopicPartitions(members.group, None)]
    found = admin.list_consumer_group_offsets(asked)[members.group].result(deadline_s()).topic_partitions
    assert [(each.partition, each.offset) for each in found] == [(1, 3)]
    admin.delete_consumer_groups([members.group])[members.group].result(deadline_s())
    assert members.group not in {each.group_id for each in admin.list_consumer_groups().result(deadline_s()).valid}


def test_kafka_python_reads_commits_and_administers(broker: BrokerProcess, filled: str) -> None:
    group = f"group-{filled}"
    consumer = kafka.KafkaConsumer(
        filled,
        bootstrap_servers=broker.bootstrap,
        group_id=group,
        auto_offset_reset="earliest",
        enable_auto_commit=False,
    )
    seen: set[bytes] = set()

    def everything() -> bool:
        # Its metadata arrives 100 ms after it has joined; a poll that ends in the following rejoin loses that.
        for records in consumer.poll(timeout_ms=1000).values():
            seen.update(record.value for record in records)
        return len(seen) == RECORDS

    with closing(consumer), closing(KafkaAdminClient(bootstrap_servers=broker.bootstrap)) as admin:
        wait_until(everything, "all records")
        consumer.commit()
        offsets = admin.list_group_offsets([group])[group]
    assert {place.partition: found.offset for place, found in offsets.items()} == dict.fromkeys(range(PARTITIONS), 10)


def test_aiokafka_reads_and_commits(broker: BrokerProcess, filled: str) -> None:
    async def work() -> None:
        settings = {
            "bootstrap_servers": broker.bootstrap,
            "group_id": f"group-{filled}",
            "auto_offset_reset": "earliest",
            "enable_auto_commit": False,
        }
        seen: set[bytes] = set()
        async with aiokafka.AIOKafkaConsumer(filled, **settings) as consumer:
            while len(seen) < RECORDS:
                for records in (await consumer.getmany(timeout_ms=100)).values():
                    seen.update(record.value or b"" for record in records)
            place = aiokafka.TopicPartition(filled, 2)
            await consumer.commit({place: OffsetAndMetadata(7, "note")})
        async with aiokafka.AIOKafkaConsumer(filled, **settings) as consumer:
            assert await consumer.committed(place) == 7
            await consumer.seek_to_committed(place)
            assert await consumer.position(place) == 7

    asyncio.run(asyncio.wait_for(work(), deadline_s(60)))
