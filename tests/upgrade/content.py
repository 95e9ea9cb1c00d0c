"""Reads the content of a broker that a data directory of another commit is compared by."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, ConfigResource, ConfigSource, NewTopic, ResourceType

from tests.support.broker_process import BrokerProcess
from tests.support.deadline import deadline_s
from tests.support.groups.libraries import read_to_end

DIRECTORIES = Path(__file__).parent / "directories"

#: The directories become old, and their records must not expire.
SETTINGS = {"offsets.retention.minutes": 2_000_000_000, "num.network.threads": 1, "num.io.threads": 2}


def records(bootstrap: str, topic: str, partitions: int) -> list[list[object]]:
    """Return partition, offset and value of every committed record, in order."""
    found = read_to_end(bootstrap, topic, partitions)
    return sorted([message.partition(), message.offset(), message.value().decode()] for message in found)


def committed(bootstrap: str) -> list[int]:
    """Return the offsets that the group has committed."""
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "readers"})
    try:
        asked = [TopicPartition("orders", 0), TopicPartition("orders", 1)]
        return [each.offset for each in consumer.committed(asked, deadline_s())]
    finally:
        consumer.close()


def topic_settings(bootstrap: str, topic: str) -> dict[str, str]:
    """Return the settings that the topic itself has."""
    resource = ConfigResource(ResourceType.TOPIC, topic)
    admin = AdminClient({"bootstrap.servers": bootstrap})
    [done] = admin.describe_configs([resource]).values()
    own = ConfigSource.DYNAMIC_TOPIC_CONFIG.value
    return {name: entry.value for name, entry in done.result(deadline_s()).items() if entry.source == own}


def assert_is_served(broker: BrokerProcess, content: Mapping[str, Any]) -> None:
    """Assert that a started broker has this content and no complaint in its log."""
    bootstrap = broker.bootstrap
    for topic, expected in content["records"].items():
        partitions = 1 + max(partition for partition, _, _ in expected)
        assert records(bootstrap, topic, partitions) == expected
        assert topic_settings(bootstrap, topic) == content["settings"][topic]
    if content["committed"]:
        assert committed(bootstrap) == content["committed"]
    problems = [line for line in broker.log_since(0) if " ERROR " in line or "orphan" in line]
    assert not problems, problems


def write_more(bootstrap: str, new_topic: str) -> None:
    """Create a topic, and write to an old and the new one in a transaction of an earlier transactional id."""
    admin = AdminClient({"bootstrap.servers": bootstrap})
    [created] = admin.create_topics([NewTopic(new_topic, 1, 1)]).values()
    created.result(deadline_s())
    producer = Producer({"bootstrap.servers": bootstrap, "transactional.id": "writer"})
    producer.init_transactions(deadline_s())
    producer.begin_transaction()
    producer.produce("orders", "last", partition=0)
    producer.produce(new_topic, "first", partition=0)
    producer.commit_transaction(deadline_s())
    assert records(bootstrap, "orders", 1)[-1][2] == "last"
    assert records(bootstrap, new_topic, 1) == [[0, 0, "first"]]
