"""`__consumer_offsets` and `__transaction_state` are compacted on a running broker without a change of their state."""

from collections.abc import Mapping
from pathlib import Path

from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic, ResourceType

from tests.support.broker_process import BrokerProcess
from tests.support.broker_settings import set_configs
from tests.support.deadline import deadline_s, wait_until
from tests.support.groups.libraries import read_to_end

BROKER_SETTINGS = {
    "offsets.topic.num.partitions": 1,
    "transaction.state.log.num.partitions": 1,
    "log.cleaner.backoff.ms": 30,
    "log.cleaner.min.cleanable.ratio": 0.01,
    "process.restart.limit": 1000,
}
INTERNAL = ("__consumer_offsets", "__transaction_state")
GROUPS = 6
PARTITIONS = 3


class Offsets:
    """Groups that commit offsets of one topic, and their committed offsets."""

    def __init__(self, broker: BrokerProcess, topic: str) -> None:
        self.broker = broker
        self.topic = topic
        self.consumers = {
            f"{topic}-{number}": Consumer(
                {"bootstrap.servers": broker.bootstrap, "group.id": f"{topic}-{number}", "enable.auto.commit": False}
            )
            for number in range(GROUPS)
        }
        self.expected: dict[str, dict[int, int]] = {group: {} for group in self.consumers}

    def commit(self, first: int, rounds: int) -> None:
        """Commit `rounds` times for every group and partition, offsets from `first` on."""
        for offset in range(first, first + rounds):
            for number, (group, consumer) in enumerate(self.consumers.items()):
                places = self.places(dict.fromkeys(range(PARTITIONS), offset * 10 + number))
                for done in consumer.commit(offsets=places, asynchronous=False):
                    assert done.error is None
                    self.expected[group][done.partition] = done.offset

    def commit_in(self, producer: Producer, group: str, offset: int) -> None:
        """Put an offset of partition 0 into the transaction of a producer."""
        metadata = self.consumers[group].consumer_group_metadata()
        producer.send_offsets_to_transaction(self.places({0: offset}), metadata, deadline_s())

    def places(self, offsets: Mapping[int, int]) -> list[TopicPartition]:
        return [TopicPartition(self.topic, partition, offset) for partition, offset in offsets.items()]

    def check(self) -> None:
        """Compare the broker's offsets with the last commits."""
        for group, consumer in self.consumers.items():
            places = [TopicPartition(self.topic, p) for p in range(PARTITIONS)]
            found = {place.partition: place.offset for place in consumer.committed(places, deadline_s())}
            assert found == self.expected[group], group

    def close(self) -> None:
        for consumer in self.consumers.values():
            consumer.close()


def log_bytes(broker: BrokerProcess, name: str) -> int:
    directory = Path(broker.status()["data_dir"]) / f"{name}-0"
    sizes = []
    for path in directory.glob("*.log"):
        try:
            sizes.append(path.stat().st_size)
        except FileNotFoundError:
            continue
    return sum(sizes)


def compacted_below(broker: BrokerProcess, name: str, size_bytes: int) -> None:
    wait_until(lambda: log_bytes(broker, name) < size_bytes, f"{name} is compacted")


def transactional(broker: BrokerProcess, transactional_id: str) -> Producer:
    producer = Producer({"bootstrap.servers": broker.bootstrap, "transactional.id": transactional_id, "linger.ms": 0})
    producer.init_transactions(deadline_s())
    return producer


def make_topic(broker: BrokerProcess, topic: str) -> None:
    """Create a topic, with small segments for the internal ones."""
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    admin.create_topics([NewTopic(topic, PARTITIONS)])[topic].result(deadline_s())
    transactional(broker, "first")
    Consumer({"bootstrap.servers": broker.bootstrap, "group.id": "first"}).committed(
        [TopicPartition(topic, 0)], deadline_s()
    )
    for name in INTERNAL:
        set_configs(admin, ResourceType.TOPIC, name, {"internal.segment.bytes": 3000})


def test_offsets_are_compacted(broker: BrokerProcess, topic: str) -> None:
    """The offsets of transactions among them: committed ones count, aborted ones do not, open ones are still open."""
    make_topic(broker, topic)
    offsets = Offsets(broker, topic)
    producer = transactional(broker, topic)
    name = INTERNAL[0]
    try:
        offsets.commit(1, 8)
        groups = list(offsets.expected)
        producer.begin_transaction()
        offsets.commit_in(producer, groups[0], 1_000_001)
        producer.abort_transaction(deadline_s())
        producer.begin_transaction()
        offsets.commit_in(producer, groups[1], 1_000_002)
        producer.commit_transaction(deadline_s())
        offsets.expected[groups[1]][0] = 1_000_002
        offsets.check()
        offsets.commit(100, 1)
        # Records committed during an open transaction cannot be compacted before it ends.
        producer.begin_transaction()
        offsets.commit_in(producer, groups[2], 1_000_003)
        offsets.commit_in(producer, groups[3], 1_000_004)
        for group in groups[:2] + groups[4:]:
            offsets.consumers[group].commit(offsets=offsets.places({1: 77}), asynchronous=False)
            offsets.expected[group][1] = 77
        broker.kill("handler", wait=False)
        compacted_below(broker, name, 9_000)
        producer.commit_transaction(deadline_s())
        for number in (2, 3):
            offsets.expected[groups[number]][0] = 1_000_001 + number
        broker.kill("handler", wait=False)
        offsets.check()
        offsets.commit(200, 8)
        compacted_below(broker, name, 9_000)
        broker.kill("handler", wait=False)
        offsets.check()
    finally:
        offsets.close()


def test_an_offset_of_a_transaction_survives_compaction(broker: BrokerProcess, topic: str) -> None:
    """An offset added to a transaction and never again is still there after everything around it has been removed."""
    make_topic(broker, topic)
    offsets = Offsets(broker, topic)
    name = INTERNAL[0]
    try:
        producer = transactional(broker, topic)
        first = next(iter(offsets.expected))
        offsets.commit(1, 1)
        for commit, offset in ((True, 5_000), (False, 6_000)):
            producer.begin_transaction()
            offsets.commit_in(producer, first, offset)
            (producer.commit_transaction if commit else producer.abort_transaction)(deadline_s())
        offsets.expected[first][0] = 5_000
        others = offsets.consumers.copy()
        mine = offsets.consumers.pop(first)
        for rounds in range(2):
            offsets.commit(10 + 10 * rounds, 8)
            compacted_below(broker, name, 9_000)
            broker.kill("handler", wait=False)
            offsets.check()
        offsets.consumers = {first: mine}
        offsets.check()
        offsets.consumers = others
    finally:
        offsets.close()


def test_the_state_of_transactions_is_compacted(broker: BrokerProcess, topic: str) -> None:
    """Producers reuse their transactional ids, and nothing that they committed is missing."""
    make_topic(broker, topic)
    producers = [transactional(broker, f"{topic}-{number}") for number in range(3)]
    name = INTERNAL[1]
    committed = set()
    for number in range(24):
        producer = producers[number % 3]
        producer.begin_transaction()
        value = b"%d" % number
        producer.produce(topic, value, partition=number % PARTITIONS)
        if number % 4 == 3:
            producer.abort_transaction(deadline_s())
        else:
            producer.commit_transaction(deadline_s())
            committed.add(value)
        if number == 16:
            compacted_below(broker, name, 6_000)
            broker.kill("handler", wait=False)
    compacted_below(broker, name, 6_000)
    broker.kill("handler", wait=False)
    again = transactional(broker, f"{topic}-0")
    again.begin_transaction()
    again.produce(topic, b"again", partition=0)
    again.commit_transaction(deadline_s())
    found = read_to_end(broker.bootstrap, topic, PARTITIONS)
    assert {message.value() for message in found} == committed | {b"again"}
