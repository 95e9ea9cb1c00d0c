"""Reads the content of a broker that a data directory of an earlier commit is compared by."""

from pathlib import Path

from confluent_kafka import Consumer, TopicPartition
from confluent_kafka.admin import AdminClient, ConfigResource, ConfigSource, ResourceType

from tests.support.groups.libraries import read_to_end

DIRECTORIES = Path(__file__).parent / "directories"
WAIT_S = 20.0


def records(bootstrap: str, topic: str, partitions: int) -> list[list[object]]:
    """Return partition, offset and value of every committed record, in order."""
    found = read_to_end(bootstrap, topic, partitions)
    return sorted([message.partition(), message.offset(), message.value().decode()] for message in found)


def committed(bootstrap: str) -> list[int]:
    """Return the offsets that the group has committed."""
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "readers"})
    try:
        asked = [TopicPartition("orders", 0), TopicPartition("orders", 1)]
        return [each.offset for each in consumer.committed(asked, WAIT_S)]
    finally:
        consumer.close()


def topic_settings(bootstrap: str, topic: str) -> dict[str, str]:
    """Return the settings that the topic itself has."""
    resource = ConfigResource(ResourceType.TOPIC, topic)
    admin = AdminClient({"bootstrap.servers": bootstrap})
    [done] = admin.describe_configs([resource]).values()
    own = ConfigSource.DYNAMIC_TOPIC_CONFIG.value
    return {name: entry.value for name, entry in done.result(WAIT_S).items() if entry.source == own}
