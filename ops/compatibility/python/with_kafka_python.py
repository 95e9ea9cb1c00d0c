"""kafka-python 3: groups, static members, transactions, admin."""

import time
from functools import partial

from checks import require, run, unique, until
from kafka import KafkaConsumer, KafkaProducer, TopicPartition
from kafka.admin import KafkaAdminClient
from kafka.coordinator.assignors.range import RangePartitionAssignor
from kafka.coordinator.assignors.sticky.sticky_assignor import StickyPartitionAssignor
from kafka.errors import KafkaError
from kafka.structs import OffsetAndMetadata

RANGE = {"partition_assignment_strategy": [RangePartitionAssignor]}
STICKY = {"partition_assignment_strategy": [StickyPartitionAssignor]}


def new_topic(bootstrap: str, partitions: int) -> str:
    """Create a topic and return its name."""
    name = unique("topic")
    client = KafkaAdminClient(bootstrap_servers=bootstrap)
    client.create_topics({name: {"num_partitions": partitions, "replication_factor": 1}}, wait_for_metadata=True)
    client.close()
    return name


def fill(bootstrap: str, topic: str, partitions: int, count: int, prefix: str = "v") -> None:
    """Produce `count` values in turns to the partitions."""
    producer = KafkaProducer(bootstrap_servers=bootstrap)
    for number in range(count):
        producer.send(topic, f"{prefix}{number}".encode(), partition=number % partitions)
    producer.flush(30)
    producer.close()


def consumer_of(bootstrap: str, group: str | None, *topics: str, **settings: object) -> KafkaConsumer:
    """Return a consumer without automatic commits."""
    defaults = {"auto_offset_reset": "earliest", "enable_auto_commit": False, "session_timeout_ms": 10000}
    return KafkaConsumer(
        *topics, bootstrap_servers=bootstrap, group_id=group, **{**defaults, "heartbeat_interval_ms": 300, **settings}
    )


def poll_all(consumers: tuple[KafkaConsumer, ...], into: list[str]) -> bool:
    """Poll each once; returns True, for use in conditions."""
    for consumer in consumers:
        for records in consumer.poll(500).values():
            into += [record.value.decode() for record in records]
    return True


def two_members(settings: dict[str, object], bootstrap: str) -> None:
    """Share four partitions, leave, and continue with a third member from the committed offsets."""
    topic, group = new_topic(bootstrap, 4), unique("group")
    values: list[str] = []
    first, second = (consumer_of(bootstrap, group, topic, **settings) for _ in range(2))
    until(
        "two partitions each",
        lambda: poll_all((first, second), values) and [len(one.assignment()) for one in (first, second)] == [2, 2],
    )
    fill(bootstrap, topic, 4, 100)
    until("100 values", lambda: poll_all((first, second), values) and len(values) >= 100)
    require(len(set(values)) == len(values) == 100, "len(set(values)) == len(values) == 100")
    for consumer in (first, second):
        consumer.commit()
    second.close()
    until("all four", lambda: poll_all((first,), values) and len(first.assignment()) == 4)
    first.close()
    fill(bootstrap, topic, 4, 8, "later")
    third = consumer_of(bootstrap, group, topic, **settings)
    found: list[str] = []
    until("8 later values", lambda: poll_all((third,), found) and len(found) >= 8)
    third.close()
    require(
        sorted(found) == [f"later{number}" for number in range(8)],
        "sorted(found) == [f'later{number}' for number in range(8)]",
    )


def static_member(bootstrap: str) -> None:
    """Restart a static member: it gets its partitions again."""
    topic, group = new_topic(bootstrap, 4), unique("group")
    ignored: list[str] = []
    first, second = (consumer_of(bootstrap, group, topic, group_instance_id=name, **RANGE) for name in "ab")
    until(
        "two partitions each",
        lambda: poll_all((first, second), ignored) and [len(one.assignment()) for one in (first, second)] == [2, 2],
    )
    before = second.assignment()
    second.close()
    again = consumer_of(bootstrap, group, topic, group_instance_id="b", **RANGE)
    until("its partitions", lambda: poll_all((first, again), ignored) and len(again.assignment()) == 2)
    require(again.assignment() == before, "again.assignment() == before")
    for consumer in (again, first):
        consumer.close()


def transactions(bootstrap: str) -> None:
    """Commit and abort alternately, with offsets of a group; only committed records are read."""
    topic, group = new_topic(bootstrap, 2), unique("group")
    producer = KafkaProducer(bootstrap_servers=bootstrap, transactional_id=unique("tx"))
    producer.init_transactions()
    partition = TopicPartition(topic, 0)
    for turn in range(6):
        keep = turn % 2 == 0
        producer.begin_transaction()
        for number in range(10):
            producer.send(topic, f"{'kept' if keep else 'lost'}-{turn}-{number}".encode(), partition=number % 2)
        producer.send_offsets_to_transaction({partition: OffsetAndMetadata(turn, "", -1)}, group)
        if keep:
            producer.commit_transaction()
        else:
            producer.flush(30)
            producer.abort_transaction()
    producer.close()
    values: list[str] = []
    consumer = consumer_of(bootstrap, None, isolation_level="read_committed")
    consumer.assign([TopicPartition(topic, number) for number in range(2)])
    consumer.seek_to_beginning()
    until("30 values", lambda: poll_all((consumer,), values) and len(values) >= 30)
    end = time.monotonic() + 0.5
    until("nothing more", lambda: poll_all((consumer,), values) and time.monotonic() > end)
    consumer.close()
    require(len(values) == 30, "len(values) == 30")
    require(all(value.startswith("kept") for value in values), "all((value.startswith('kept') for value in values))")
    reader = consumer_of(bootstrap, group)
    require(reader.committed(partition) == 4, "reader.committed(partition) == 4")
    reader.close()


def fencing(bootstrap: str) -> None:
    """Start a second producer of one transactional id: it fences the first."""
    topic, name = new_topic(bootstrap, 1), unique("tx")
    first, second = (KafkaProducer(bootstrap_servers=bootstrap, transactional_id=name) for _ in range(2))
    first.init_transactions()
    first.begin_transaction()
    first.send(topic, b"lost").get(30)
    second.init_transactions()
    try:
        first.send(topic, b"refused").get(30)
        first.commit_transaction()
    except KafkaError:
        second.close()
    else:
        raise AssertionError("the first producer was not fenced")


def admin(bootstrap: str) -> None:
    """Describe groups, transactions, quorum and features through the admin client."""
    client = KafkaAdminClient(bootstrap_servers=bootstrap)
    topic, group = new_topic(bootstrap, 1), unique("group")
    fill(bootstrap, topic, 1, 10)
    consumer = consumer_of(bootstrap, group, topic)
    values: list[str] = []
    until("10 values", lambda: poll_all((consumer,), values) and len(values) >= 10)
    consumer.commit()
    require(group in str(client.list_groups()), "group in str(client.list_groups())")
    require("Stable" in str(client.describe_groups([group])), "'Stable' in str(client.describe_groups([group]))")
    require("10" in str(client.list_group_offsets(group)), "'10' in str(client.list_group_offsets(group))")
    consumer.close()
    client.list_transactions()
    client.describe_metadata_quorum()
    require(
        "transaction.version" in str(client.describe_features()),
        "'transaction.version' in str(client.describe_features())",
    )
    client.delete_groups([group])
    require(group not in str(client.list_groups()), "group not in str(client.list_groups())")
    client.close()


if __name__ == "__main__":
    run(
        {
            "group: range": partial(two_members, RANGE),
            "group: sticky": partial(two_members, STICKY),
            "group: static member returns": static_member,
            "transactions: commit and abort, offsets": transactions,
            "transactions: a second producer fences the first": fencing,
            "admin: groups, offsets, features": admin,
        }
    )
