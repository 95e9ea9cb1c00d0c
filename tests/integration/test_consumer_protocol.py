"""Consumers of KIP-848's protocol as librdkafka speaks it: shares, hand-overs, moves of protocol.

I68, I69; users row 10.
"""

import asyncio
import threading
import uuid
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from typing import Any

import aiokafka
import kafka
import pytest
from confluent_kafka import (
    ConsumerGroupState,
    ConsumerGroupTopicPartitions,
    ConsumerGroupType,
    KafkaException,
    Producer,
)
from confluent_kafka.admin import AdminClient, NewTopic

from tests.support.broker_process import BrokerProcess
from tests.support.deadline import deadline_s, wait_until
from tests.support.groups.libraries import consumer_of

BROKER_SETTINGS = {
    "group.consumer.heartbeat.interval.ms": 100,
    "group.consumer.min.heartbeat.interval.ms": 100,
    "group.consumer.session.timeout.ms": 5000,
    "group.consumer.min.session.timeout.ms": 1000,
    "group.initial.rebalance.delay.ms": 0,
    "offsets.topic.num.partitions": 4,
}


class Reader:
    """A consumer that polls in its own thread, with its assignment and the records it has read."""

    def __init__(self, bootstrap: str, group: str, topics: list[str], **settings: Any) -> None:
        self.consumer = consumer_of(bootstrap, group, **{"group_protocol": "consumer", **settings})
        #: Its assignment. Read only by its own thread: librdkafka's response may need a callback first.
        self.partitions: set[tuple[str, int]] = set()
        self.values: list[bytes] = []
        self.errors: list[str] = []
        self._stopped = threading.Event()
        self.consumer.subscribe(topics)
        self._thread = threading.Thread(target=self._poll)
        self._thread.start()

    def stop(self) -> None:
        """Leave the group."""
        if not self._stopped.is_set():
            self._stopped.set()
            self._thread.join()

    def _poll(self) -> None:
        while not self._stopped.is_set():
            message = self.consumer.poll(0.05)
            self.partitions = {(each.topic, each.partition) for each in self.consumer.assignment()}
            if message is None:
                continue
            if message.error():
                self.errors.append(str(message.error()))
                continue
            self.values.append(message.value() or b"")
            with suppress(KafkaException):
                # A commit that is too late for a rebalance is rejected, as it should be.
                self.consumer.commit(message, asynchronous=False)
        self.consumer.close()


@pytest.fixture
def readers(broker: BrokerProcess) -> Iterator[Callable[..., Reader]]:
    """Make readers, which are stopped afterwards."""
    made: list[Reader] = []

    def make(group: str, topics: list[str], **settings: Any) -> Reader:
        made.append(Reader(broker.bootstrap, group, topics, **settings))
        return made[-1]

    yield make
    for reader in made:
        reader.stop()


@pytest.fixture
def group() -> str:
    """Return a group that no other test uses."""
    return f"group-{uuid.uuid4().hex[:12]}"


def create(admin: AdminClient, name: str, partitions: int) -> None:
    admin.create_topics([NewTopic(name, partitions, 1)])[name].result(deadline_s())


def produce(broker: BrokerProcess, topic: str, partitions: int, values: range) -> None:
    producer = Producer({"bootstrap.servers": broker.bootstrap})
    for value in values:
        producer.produce(topic, str(value).encode(), partition=value % partitions)
    assert producer.flush(deadline_s()) == 0


def sizes(*members: Reader) -> list[int]:
    return sorted(len(member.partitions) for member in members)


def wait_for_all(members: Iterable[Reader], numbers: range) -> None:
    """Wait until a group has read these numbers, and no others.

    One may appear twice: when a partition returns to it, librdkafka (2.16) still delivers the records of the Fetch that
    was in flight when the partition was revoked. So may one whose commit was too late for a rebalance.
    """
    wait_until(
        lambda: {int(value) for member in members for value in member.values} == set(numbers), f"{numbers} to be read"
    )


def committed(admin: AdminClient, group: str) -> dict[int, int]:
    """Return the offset of each partition of a group that reads one topic."""
    asked = ConsumerGroupTopicPartitions(group)
    found = admin.list_consumer_group_offsets([asked])[group].result(deadline_s()).topic_partitions
    return {each.partition: each.offset for each in found}


def describe(admin: AdminClient, group: str) -> Any:
    return admin.describe_consumer_groups([group])[group].result(deadline_s())


def test_members_share_hand_over_and_inherit(
    broker: BrokerProcess, admin: AdminClient, readers: Callable[..., Reader], topic: str, group: str
) -> None:
    create(admin, topic, 6)
    first = readers(group, [topic])
    wait_until(lambda: sizes(first) == [6], "all partitions to be the first member's")
    second, third = readers(group, [topic]), readers(group, [topic])
    wait_until(lambda: sizes(first, second, third) == [2, 2, 2], "an even share for all")
    produce(broker, topic, 6, range(60))
    wait_for_all((first, second, third), range(60))
    second.stop()
    wait_until(lambda: sizes(first, third) == [3, 3], "the others to inherit")
    produce(broker, topic, 6, range(60, 120))
    wait_for_all((first, second, third), range(120))
    wait_until(lambda: committed(admin, group) == dict.fromkeys(range(6), 20), "everything to be committed")
    assert not first.errors + second.errors + third.errors


def test_groups_of_both_kinds_side_by_side(
    broker: BrokerProcess, admin: AdminClient, readers: Callable[..., Reader], topic: str, group: str
) -> None:
    create(admin, topic, 4)
    ours = [readers(group, [topic]) for _ in range(2)]
    classic = [readers(f"{group}-classic", [topic], group_protocol="classic") for _ in range(2)]
    wait_until(lambda: sizes(*ours) == sizes(*classic) == [2, 2], "both to have their shares")
    produce(broker, topic, 4, range(40))
    for pair in (ours, classic):
        wait_for_all(pair, range(40))
    listed = {each.group_id: each.type for each in admin.list_consumer_groups().result(deadline_s()).valid}
    assert listed[group] == ConsumerGroupType.CONSUMER
    assert listed[f"{group}-classic"] == ConsumerGroupType.CLASSIC
    # A member has its share a moment before the coordinator receives its confirmation.
    wait_until(lambda: describe(admin, group).state == ConsumerGroupState.STABLE, "the group is stable")
    described = describe(admin, group)
    assert described.type == ConsumerGroupType.CONSUMER
    assert sorted(len(member.assignment.topic_partitions) for member in described.members) == [2, 2]
    with pytest.raises(KafkaException, match="NON_EMPTY_GROUP"):
        admin.delete_consumer_groups([group])[group].result(deadline_s())


def test_an_empty_group_changes_its_kind_and_keeps_its_offsets(
    broker: BrokerProcess, admin: AdminClient, readers: Callable[..., Reader], topic: str, group: str
) -> None:
    create(admin, topic, 2)
    kinds = ("consumer", "classic", "consumer")
    for number, protocol in enumerate(kinds):
        produce(broker, topic, 2, range(10 * number, 10 * number + 10))
        reader = readers(group, [topic], group_protocol=protocol)
        wait_for_all([reader], range(10 * number, 10 * number + 10))
        reader.stop()
        assert committed(admin, group) == dict.fromkeys(range(2), 5 * (number + 1))
        assert describe(admin, group).type == getattr(ConsumerGroupType, protocol.upper())
        assert describe(admin, group).state == ConsumerGroupState.EMPTY
    admin.delete_consumer_groups([group])[group].result(deadline_s())


def commit_by_aiokafka(bootstrap: str, topic: str, group: str, offset: int) -> None:
    """Commit an offset of partition 0 in a transaction, naming the group alone."""

    async def work() -> None:
        async with aiokafka.AIOKafkaProducer(bootstrap_servers=bootstrap, transactional_id=group) as producer:
            await producer.begin_transaction()
            await producer.send_offsets_to_transaction({aiokafka.TopicPartition(topic, 0): offset}, group)
            await producer.commit_transaction()

    asyncio.run(asyncio.wait_for(work(), deadline_s()))


def commit_by_kafka_python(bootstrap: str, topic: str, group: str, offset: int) -> None:
    """Commit an offset of partition 0 in a transaction, naming the group alone."""
    producer = kafka.KafkaProducer(bootstrap_servers=bootstrap, transactional_id=group)
    try:
        producer.init_transactions()
        producer.begin_transaction()
        offsets = {kafka.TopicPartition(topic, 0): kafka.OffsetAndMetadata(offset, "", -1)}
        producer.send_offsets_to_transaction(offsets, group)
        producer.commit_transaction()
    finally:
        producer.close(timeout=deadline_s())


@pytest.mark.parametrize("commit", [commit_by_aiokafka, commit_by_kafka_python])
def test_producers_that_name_the_group_alone_commit_for_its_members(
    broker: BrokerProcess,
    admin: AdminClient,
    readers: Callable[..., Reader],
    topic: str,
    group: str,
    commit: Callable[[str, str, str, int], None],
) -> None:
    create(admin, topic, 1)
    member = readers(group, [topic])
    wait_until(lambda: sizes(member) == [1], "the assignment")
    commit(broker.bootstrap, topic, group, 7)
    assert committed(admin, group) == {0: 7}
    assert describe(admin, group).type == ConsumerGroupType.CONSUMER


def test_a_group_is_moved_to_the_new_protocol_and_back_one_member_at_a_time(
    broker: BrokerProcess, admin: AdminClient, readers: Callable[..., Reader], topic: str, group: str
) -> None:
    classic = {
        "group_protocol": "classic",
        "partition_assignment_strategy": "cooperative-sticky",
        "heartbeat_interval_ms": 100,
        "session_timeout_ms": 6000,
    }
    create(admin, topic, 4)
    members = [readers(group, [topic], **classic) for _ in range(2)]
    wait_until(lambda: sizes(*members) == [2, 2], "halves")
    everybody = list(members)
    produced = 0
    for settings in ({}, {}, classic, classic):
        produce(broker, topic, 4, range(produced, produced + 20))
        produced += 20
        members.append(readers(group, [topic], **settings))
        everybody.append(members[-1])
        wait_until(lambda: sizes(*members) == [1, 1, 2], "a share for each of three")
        members.pop(0).stop()
        wait_until(lambda: sizes(*members) == [2, 2], "halves")
    assert describe(admin, group).type == ConsumerGroupType.CLASSIC
    wait_until(
        lambda: {int(value) for each in everybody for value in each.values} == set(range(produced)), "all to be read"
    )
    assert not [error for each in everybody for error in each.errors]
