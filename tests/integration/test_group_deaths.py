"""Groups of unmodified clients while their coordinating handlers are killed: no client notices, nothing is lost."""

import random
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from tests.support.broker_process import BrokerProcess
from tests.support.deadline import deadline_s, wait_until
from tests.support.groups.libraries import RUNNERS, Orders, collect_left_sockets

pytestmark = pytest.mark.filterwarnings("ignore:unclosed <socket:ResourceWarning")
HANDLERS = 3
BROKER_SETTINGS = {"num.io.threads": HANDLERS}
PARTITIONS = 6
KILLS = 2
RECORDS_BETWEEN = 60


@pytest.fixture(autouse=True, scope="module")
def _sockets() -> Iterator[None]:
    yield
    collect_left_sockets()


class Writing:
    """Numbered records, evenly over the partitions."""

    def __init__(self, broker: BrokerProcess, topic: str) -> None:
        self._producer = Producer({"bootstrap.servers": broker.bootstrap, "linger.ms": 1})
        self._topic = topic
        self.written: set[bytes] = set()

    def write(self, count: int) -> None:
        """Write records and wait until they are committed."""
        for _ in range(count):
            number = len(self.written)
            value = b"%d" % number
            self._producer.produce(self._topic, value, partition=number % PARTITIONS)
            self.written.add(value)
        assert self._producer.flush(deadline_s()) == 0


def make_topic(broker: BrokerProcess, topic: str) -> None:
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    admin.create_topics([NewTopic(topic, PARTITIONS)])[topic].result(deadline_s())


def committed_offsets(broker: BrokerProcess, group: str, topic: str) -> dict[int, int]:
    client = Consumer({"bootstrap.servers": broker.bootstrap, "group.id": group})
    try:
        found = client.committed([TopicPartition(topic, index) for index in range(PARTITIONS)], 60)
        return {each.partition: each.offset for each in found}
    finally:
        client.close()


def check(broker: BrokerProcess, orders: Orders, writing: Writing) -> None:
    """Check that everything was read, and that every confirmed commit is still there."""
    assert writing.written <= orders.report.read
    committed = committed_offsets(broker, orders.group, orders.topic)
    for partition, offset in orders.report.committed.items():
        assert committed[partition] >= offset, (partition, committed, orders.report.committed)


def all_running(members: list[Future[None]]) -> bool:
    for member in members:
        if member.done():
            member.result()
            return False
    return True


@pytest.mark.parametrize("client", RUNNERS)
def test_members_read_commit_and_rebalance_while_handlers_die(
    broker: BrokerProcess, topic: str, client: str, chance: random.Random
) -> None:
    """Issue row 1: the death of a group's owner, in rebalances too, loses no committed offset and fails no member."""
    make_topic(broker, topic)
    writing = Writing(broker, topic)
    orders = Orders(broker.bootstrap, f"group-{topic}", topic)
    guests = [Orders(broker.bootstrap, orders.group, topic) for _ in range(2)]
    for guest in guests:
        guest.report = orders.report
    with ThreadPoolExecutor(4) as pool:
        members = [pool.submit(RUNNERS[client], orders) for _ in range(2)]

        def kill_one() -> None:
            broker.kill("handler", chance.randrange(HANDLERS))

        def write_and_read() -> None:
            writing.write(RECORDS_BETWEEN)
            wait_until(lambda: not all_running(members[:2]) or orders.report.read >= writing.written, "all read")
            assert all_running(members[:2])

        try:
            for _ in range(KILLS):
                write_and_read()
                kill_one()
            for guest in guests:
                members.append(pool.submit(RUNNERS[client], guest))
                kill_one()
                write_and_read()
                guest.stop.set()
                kill_one()
            write_and_read()
        finally:
            for each in (orders, *guests):
                each.stop.set()
        for member in members:
            member.result()
    check(broker, orders, writing)
