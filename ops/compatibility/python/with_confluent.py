"""confluent-kafka (librdkafka): groups of both protocols, static and cooperative members, transactions, admin."""

import time
from collections.abc import Iterable
from functools import partial

from checks import require, run, unique, until
from confluent_kafka import (
    Consumer,
    ConsumerGroupState,
    ConsumerGroupTopicPartitions,
    IsolationLevel,
    KafkaException,
    Producer,
    TopicPartition,
)
from confluent_kafka.admin import AdminClient, NewTopic, OffsetSpec

WAIT_SECONDS = 30
CLASSIC = {"session.timeout.ms": 10000, "heartbeat.interval.ms": 300}
COOPERATIVE = {**CLASSIC, "partition.assignment.strategy": "cooperative-sticky"}
MODERN = {"group.protocol": "consumer"}


def new_topic(bootstrap: str, partitions: int = 4) -> str:
    """Create a topic and return its name."""
    name = unique("topic")
    client = AdminClient({"bootstrap.servers": bootstrap})
    client.create_topics([NewTopic(name, partitions, 1)])[name].result(WAIT_SECONDS)
    return name


def fill(bootstrap: str, topic: str, partitions: int, count: int, prefix: str = "v") -> None:
    """Produce `count` values in turns to the partitions."""
    producer = Producer({"bootstrap.servers": bootstrap, "enable.idempotence": True, "linger.ms": 2})
    for number in range(count):
        producer.produce(topic, f"{prefix}{number}", partition=number % partitions)
    require(producer.flush(WAIT_SECONDS) == 0, "producer.flush(WAIT_SECONDS) == 0")


def consumer_of(bootstrap: str, group: str, **settings: object) -> Consumer:
    """Return a consumer; underscores in the names of settings mean dots."""
    named = {key.replace("_", "."): value for key, value in settings.items()}
    return Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": group,
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
            **named,
        }
    )


def poll_all(consumers: Iterable[Consumer], into: list[str]) -> bool:
    """Poll each once; returns True, for use in conditions."""
    for consumer in consumers:
        message = consumer.poll(0.05)
        if message is not None and message.error() is None:
            into.append(message.value().decode())
    return True


def two_members(settings: dict[str, object], bootstrap: str) -> None:
    """Share four partitions, leave, and continue with a third member from the committed offsets."""
    topic, group = new_topic(bootstrap), unique("group")
    values: list[str] = []
    first, second = consumer_of(bootstrap, group, **settings), consumer_of(bootstrap, group, **settings)
    for consumer in (first, second):
        consumer.subscribe([topic])
    until(
        "two partitions each",
        lambda: poll_all((first, second), values) and [len(one.assignment()) for one in (first, second)] == [2, 2],
    )
    fill(bootstrap, topic, 4, 100)
    until("100 values", lambda: poll_all((first, second), values) and len(values) >= 100)
    require(len(set(values)) == len(values) == 100, "len(set(values)) == len(values) == 100")
    for consumer in (first, second):
        consumer.commit(asynchronous=False)
    second.close()
    until("all four", lambda: poll_all((first,), values) and len(first.assignment()) == 4)
    first.close()
    fill(bootstrap, topic, 4, 8, "later")
    third = consumer_of(bootstrap, group, **settings)
    third.subscribe([topic])
    found: list[str] = []
    until("8 later values", lambda: poll_all((third,), found) and len(found) >= 8)
    third.close()
    require(
        sorted(found) == [f"later{number}" for number in range(8)],
        "sorted(found) == [f'later{number}' for number in range(8)]",
    )


def static_member(settings: dict[str, object], bootstrap: str) -> None:
    """Restart a static member: it gets its partitions again, without a rebalance of the other members."""
    topic, group = new_topic(bootstrap), unique("group")
    rebalances: list[int] = []
    first = consumer_of(bootstrap, group, group_instance_id="a", **settings)
    second = consumer_of(bootstrap, group, group_instance_id="b", **settings)
    first.subscribe([topic], on_assign=lambda _, partitions: rebalances.append(len(partitions)))
    second.subscribe([topic])
    ignored: list[str] = []
    until(
        "two partitions each",
        lambda: poll_all((first, second), ignored) and [len(one.assignment()) for one in (first, second)] == [2, 2],
    )
    before, count = sorted(row.partition for row in second.assignment()), len(rebalances)
    second.close()
    end = time.monotonic() + 1.0
    until("a second of polls", lambda: poll_all((first,), ignored) and time.monotonic() > end)
    again = consumer_of(bootstrap, group, group_instance_id="b", **settings)
    again.subscribe([topic])
    until("its partitions", lambda: poll_all((first, again), ignored) and len(again.assignment()) == 2)
    require(
        sorted(row.partition for row in again.assignment()) == before,
        "sorted((row.partition for row in again.assignment())) == before",
    )
    require(len(rebalances) == count, "the one that stayed was rebalanced")
    for consumer in (again, first):
        consumer.close()


def transactions(bootstrap: str) -> None:
    """Commit and abort alternately; only committed records are read."""
    topic = new_topic(bootstrap, 2)
    producer = Producer(
        {"bootstrap.servers": bootstrap, "transactional.id": unique("tx"), "transaction.timeout.ms": 60000}
    )
    producer.init_transactions(WAIT_SECONDS)
    for turn in range(6):
        producer.begin_transaction()
        for number in range(10):
            producer.produce(topic, f"{'kept' if turn % 2 == 0 else 'lost'}-{turn}-{number}", partition=number % 2)
        if turn % 2 == 0:
            producer.commit_transaction(WAIT_SECONDS)
        else:
            producer.flush(WAIT_SECONDS)
            producer.abort_transaction(WAIT_SECONDS)
    values: list[str] = []
    consumer = consumer_of(bootstrap, unique("group"), isolation_level="read_committed")
    consumer.assign([TopicPartition(topic, number, 0) for number in range(2)])
    until("30 values", lambda: poll_all((consumer,), values) and len(values) >= 30)
    end = time.monotonic() + 0.5
    until("nothing more", lambda: poll_all((consumer,), values) and time.monotonic() > end)
    consumer.close()
    require(len(values) == 30, "len(values) == 30")
    require(all(value.startswith("kept") for value in values), "all((value.startswith('kept') for value in values))")


def transform(settings: dict[str, object], bootstrap: str) -> None:
    """Consume, transform, produce; every third transaction is aborted and repeated."""
    source, target, group = new_topic(bootstrap, 2), new_topic(bootstrap, 2), unique("group")
    fill(bootstrap, source, 2, 100)
    producer = Producer({"bootstrap.servers": bootstrap, "transactional.id": unique("tx")})
    producer.init_transactions(WAIT_SECONDS)
    consumer = consumer_of(bootstrap, group, isolation_level="read_committed", **settings)
    consumer.subscribe([source])
    handled, turn = 0, 0
    end = time.monotonic() + WAIT_SECONDS
    while handled < 100:
        require(time.monotonic() < end, f"{handled} of 100 handled")
        messages = [message for message in consumer.consume(20, 0.2) if message.error() is None]
        if not messages:
            continue
        producer.begin_transaction()
        for message in messages:
            producer.produce(target, message.value(), partition=message.partition())
        positions = consumer.position(consumer.assignment())
        producer.send_offsets_to_transaction(positions, consumer.consumer_group_metadata(), WAIT_SECONDS)
        turn += 1
        if turn % 3 == 2:
            producer.abort_transaction(WAIT_SECONDS)
            for row in consumer.committed(consumer.assignment(), WAIT_SECONDS):
                consumer.seek(TopicPartition(row.topic, row.partition, max(row.offset, 0)))
        else:
            producer.commit_transaction(WAIT_SECONDS)
            handled += len(messages)
    consumer.close()
    values: list[str] = []
    reader = consumer_of(bootstrap, unique("group"), isolation_level="read_committed")
    reader.assign([TopicPartition(target, number, 0) for number in range(2)])
    until("100 values", lambda: poll_all((reader,), values) and len(values) >= 100)
    reader.close()
    require(len(set(values)) == len(values) == 100, "len(set(values)) == len(values) == 100")


def fencing(bootstrap: str) -> None:
    """Start a second producer of one transactional id: it fences the first."""
    topic, name = new_topic(bootstrap, 1), unique("tx")
    first, second = (Producer({"bootstrap.servers": bootstrap, "transactional.id": name}) for _ in range(2))
    first.init_transactions(WAIT_SECONDS)
    first.begin_transaction()
    first.produce(topic, "lost")
    first.flush(WAIT_SECONDS)
    second.init_transactions(WAIT_SECONDS)
    try:
        first.produce(topic, "refused")
        first.commit_transaction(WAIT_SECONDS)
    except KafkaException as raised:
        require(raised.args[0].fatal(), raised)
    else:
        raise AssertionError("the first producer was not fenced")


def admin(bootstrap: str) -> None:
    """Describe groups and offsets through the admin client."""
    client = AdminClient({"bootstrap.servers": bootstrap})
    topic, group = new_topic(bootstrap, 2), unique("group")
    fill(bootstrap, topic, 2, 10)
    consumer = consumer_of(bootstrap, group)
    consumer.subscribe([topic])
    values: list[str] = []
    until("10 values", lambda: poll_all((consumer,), values) and len(values) >= 10)
    consumer.commit(asynchronous=False)
    described = client.describe_consumer_groups([group])[group].result(WAIT_SECONDS)
    require(described.state is ConsumerGroupState.STABLE, described.state)
    require(len(described.members) == 1, "len(described.members) == 1")
    listed = client.list_consumer_groups(states={ConsumerGroupState.STABLE}).result(WAIT_SECONDS)
    require(group in {row.group_id for row in listed.valid}, "group in {row.group_id for row in listed.valid}")
    consumer.close()
    wanted = [ConsumerGroupTopicPartitions(group, [TopicPartition(topic, 0, 2)])]
    client.alter_consumer_group_offsets(wanted)[group].result(WAIT_SECONDS)
    found = client.list_consumer_group_offsets([ConsumerGroupTopicPartitions(group)])[group].result(WAIT_SECONDS)
    require(
        {row.partition: row.offset for row in found.topic_partitions} == {0: 2, 1: 5},
        "{row.partition: row.offset for row in found.topic_partitions} == {0: 2, 1: 5}",
    )
    end = client.list_offsets(
        {TopicPartition(topic, 0): OffsetSpec.latest()}, isolation_level=IsolationLevel.READ_COMMITTED
    )
    require(
        end[TopicPartition(topic, 0)].result(WAIT_SECONDS).offset == 5,
        "end[TopicPartition(topic, 0)].result(WAIT_SECONDS).offset == 5",
    )
    client.delete_consumer_groups([group])[group].result(WAIT_SECONDS)
    listed = client.list_consumer_groups().result(WAIT_SECONDS)
    require(group not in {row.group_id for row in listed.valid}, "group not in {row.group_id for row in listed.valid}")


if __name__ == "__main__":
    run(
        {
            "group: range": partial(two_members, CLASSIC),
            "group: cooperative-sticky": partial(two_members, COOPERATIVE),
            "group: static member returns": partial(static_member, CLASSIC),
            "KIP-848 group: uniform": partial(two_members, {**MODERN, "group.remote.assignor": "uniform"}),
            "KIP-848 group: range": partial(two_members, {**MODERN, "group.remote.assignor": "range"}),
            "KIP-848 group: static member returns": partial(static_member, MODERN),
            "transactions: commit and abort": transactions,
            "transactions: consume, transform, produce": partial(transform, CLASSIC),
            "transactions: consume, transform, produce, KIP-848 group": partial(transform, MODERN),
            "transactions: a second producer fences the first": fencing,
            "admin: groups and offsets": admin,
        }
    )
