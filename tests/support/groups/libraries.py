"""librdkafka's consumers: of groups, and for a read to the end."""

from __future__ import annotations

from confluent_kafka import Consumer, KafkaError, Message, TopicPartition


def consumer_of(bootstrap: str, group: str, **settings: object) -> Consumer:
    """Return librdkafka's consumer: reads from the start, commits on request; "_" replaces a dot in a setting."""
    named = {key.replace("_", "."): value for key, value in settings.items()}
    base = {"auto.offset.reset": "earliest", "enable.auto.commit": False}
    return Consumer({"bootstrap.servers": bootstrap, "group.id": group, **base, **named})


def subscriber(bootstrap: str, group: str, topics: list[str], **settings: object) -> Consumer:
    """Return a `consumer_of` that has subscribed."""
    consumer = consumer_of(bootstrap, group, **settings)
    consumer.subscribe(topics)
    return consumer


def read_to_end(
    bootstrap: str, topic: str, partitions: int, first: int = 0, isolation: str = "read_committed"
) -> list[Message]:
    """Return every message from an offset to the ends of all partitions."""
    consumer = consumer_of(bootstrap, "reader", isolation_level=isolation, enable_partition_eof=True)
    try:
        consumer.assign([TopicPartition(topic, partition, first) for partition in range(partitions)])
        found: list[Message] = []
        ended: set[int | None] = set()
        while len(ended) < partitions:
            message = consumer.poll(60)
            assert message is not None, f"{len(found)} messages, and no end of each partition of {topic}"
            error = message.error()
            if error is None:
                found.append(message)
            else:
                assert error.code() == KafkaError._PARTITION_EOF, error
                ended.add(message.partition())
        return found
    finally:
        consumer.close()
