"""Retention and compaction on a running broker: settings count from when they are set, whichever process dies."""

import os
import time
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic, ResourceType

from tests.support.broker_process import BrokerProcess
from tests.support.broker_settings import set_configs
from tests.support.deadline import deadline_s, wait_until
from tests.support.groups.libraries import read_to_end

BROKER_SETTINGS = {
    "log.retention.check.interval.ms": 100,
    "log.cleaner.backoff.ms": 50,
    "process.restart.limit": 1000,
}


class Topic:
    """One topic of one partition, its files, and the operations on it."""

    def __init__(self, broker: BrokerProcess, name: str, configs: Mapping[str, object]) -> None:
        self.name = name
        self.admin = AdminClient({"bootstrap.servers": broker.bootstrap})
        self.producer = Producer({"bootstrap.servers": broker.bootstrap, "linger.ms": 0, "acks": "all"})
        self.broker = broker
        self.directory = Path(broker.status()["data_dir"]) / f"{name}-0"
        texts = {key: str(value) for key, value in configs.items()}
        self.admin.create_topics([NewTopic(name, 1, 1, config=texts)])[name].result(deadline_s())

    def set(self, **configs: object) -> None:
        """Change settings; underscores replace dots."""
        named = {key.replace("_", "."): value for key, value in configs.items()}
        set_configs(self.admin, ResourceType.TOPIC, self.name, named)

    def produce(self, count: int, key: str = "k", value: bytes | None = b"v" * 100, timestamp_ms: int = 0) -> None:
        """Produce records, each in a batch of its own."""
        for number in range(count):
            self.producer.produce(
                self.name, key=key.replace("#", str(number)), value=value, timestamp=timestamp_ms or now_ms()
            )
            self.producer.flush()

    def watermarks(self) -> tuple[int, int]:
        """Return the log start and the end, as a client sees them."""
        consumer = Consumer({"bootstrap.servers": self.broker.bootstrap, "group.id": "unused"})
        try:
            return consumer.get_watermark_offsets(TopicPartition(self.name, 0), timeout=deadline_s(), cached=False)
        finally:
            consumer.close()

    def start_offset(self) -> int:
        return self.watermarks()[0]

    def records(self) -> list[tuple[int, bytes | None]]:
        """Return (offset, key) of every record that a consumer reads from the start."""
        found = read_to_end(self.broker.bootstrap, self.name, 1, self.start_offset())
        return [(message.offset(), message.key()) for message in found]

    def size_bytes(self) -> int:
        """Return the size of all segments."""
        total = 0
        for path in self.directory.glob("*.log"):
            with suppress(FileNotFoundError):
                total += path.stat().st_size
        return total

    def segments(self, suffix: str = ".log") -> int:
        """Return how many segment files there are."""
        return len([name for name in os.listdir(self.directory) if name.endswith(suffix)])


def now_ms() -> int:
    return time.time_ns() // 10**6


def test_cleanup_policy(broker: BrokerProcess, topic: str) -> None:
    """From delete to compact and to both; row `B`: a consumer at a vanished offset gets the next record."""
    made = Topic(broker, topic, {"internal.segment.bytes": 500, "min.cleanable.dirty.ratio": 0})
    made.produce(20, key="old")
    made.produce(20, key="k#")
    assert len(made.records()) == 40
    made.set(cleanup_policy="compact")
    # Segment after segment is swapped in; the last record of the old key is after most of them.
    wait_until(lambda: made.records()[0][0] == 19, "older records of a key are removed")
    assert len(made.records()) < 24
    assert made.start_offset() == 0
    made.set(cleanup_policy="compact,delete", retention_bytes=1000)
    wait_until(lambda: made.start_offset() > 20, "old segments are deleted")
    made.set(cleanup_policy="delete", retention_bytes=-1)
    made.produce(20, key="k1")
    assert [key for _, key in made.records()][-20:] == [b"k1"] * 20
