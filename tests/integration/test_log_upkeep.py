"""Retention and compaction on a running broker: settings count from when they are set, whichever process dies."""

import os
import signal
import time
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, AlterConfigOpType, ConfigEntry, ConfigResource, NewTopic, ResourceType

from tests.support.broker_process import BrokerProcess
from tests.support.deadline import deadline_s, wait_until
from tests.support.groups.libraries import read_to_end

BROKER_SETTINGS = {
    "log.retention.check.interval.ms": 100,
    "log.cleaner.backoff.ms": 50,
    "process.restart.limit": 1000,
}
LONG_MS = 10**12
HOUR_MS = 3_600_000


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
        entries = [
            ConfigEntry(key.replace("_", "."), str(value), incremental_operation=AlterConfigOpType.SET)
            for key, value in configs.items()
        ]
        resource = ConfigResource(ResourceType.TOPIC, self.name, incremental_configs=entries)
        for done in self.admin.incremental_alter_configs([resource]).values():
            done.result(deadline_s())

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


def test_retention_ms_deletes_all_segments_that_are_old(broker: BrokerProcess, topic: str) -> None:
    """The last segment is deleted with the others; later records continue from the same offset."""
    made = Topic(broker, topic, {"internal.segment.bytes": 500, "file.delete.delay.ms": 1})
    made.produce(10, timestamp_ms=now_ms() - 2 * HOUR_MS)
    assert made.start_offset() == 0
    made.set(retention_ms=HOUR_MS)
    wait_until(lambda: made.watermarks() == (10, 10), "everything has expired")
    made.produce(3)
    assert made.records() == [(10, b"k"), (11, b"k"), (12, b"k")]
    wait_until(lambda: made.segments(".deleted") == 0, "the files are gone")


def test_retention_bytes_and_file_delete_delay_ms(broker: BrokerProcess, topic: str) -> None:
    made = Topic(broker, topic, {"internal.segment.bytes": 500})
    made.produce(30)
    before = made.segments()
    made.set(retention_bytes=1500)
    # A file is doomed after its records are: both are waited for.
    wait_until(lambda: made.start_offset() > 15 and made.segments() < before, "the oldest segments go")
    wait_until(lambda: made.size_bytes() <= 2000, "all of them go")
    assert made.size_bytes() >= 1500
    assert made.segments(".log.deleted") > 0, "a minute is the default"
    made.set(file_delete_delay_ms=1)
    wait_until(lambda: made.segments(".deleted") == 0, "the files are gone")
    assert [offset for offset, _ in made.records()] == list(range(made.start_offset(), 30))


def test_segment_bytes_and_segment_ms(broker: BrokerProcess, topic: str) -> None:
    made = Topic(broker, topic, {})
    made.produce(4, value=bytes(400_000))
    assert made.segments() == 1
    made.set(segment_bytes=1 << 20)
    made.produce(4, value=bytes(400_000))
    assert made.segments() > 2
    before = made.segments()
    made.set(segment_ms=1000)
    made.produce(1, timestamp_ms=now_ms() + 5000)
    made.produce(1, timestamp_ms=now_ms() + 10_000)
    assert made.segments() >= before + 1


def test_cleanup_policy(broker: BrokerProcess, topic: str) -> None:
    """From delete to compact and to both; row `B`: a consumer at a vanished offset gets the next record."""
    made = Topic(broker, topic, {"internal.segment.bytes": 500, "min.cleanable.dirty.ratio": 0})
    made.produce(20, key="old")
    made.produce(20, key="k#")
    assert len(made.records()) == 40
    made.set(cleanup_policy="compact")
    # Segment after segment is swapped in; the last record of the old key is after most of them.
    wait_until(lambda: made.records()[0][0] == 19, "older records of a key go")
    assert len(made.records()) < 24
    assert made.start_offset() == 0
    made.set(cleanup_policy="compact,delete", retention_bytes=1000)
    wait_until(lambda: made.start_offset() > 20, "old segments go")
    made.set(cleanup_policy="delete", retention_bytes=-1)
    made.produce(20, key="k1")
    assert [key for _, key in made.records()][-20:] == [b"k1"] * 20


@pytest.mark.parametrize(
    ("holds_back", "lets_go"),
    [
        ({"min.compaction.lag.ms": LONG_MS, "max.compaction.lag.ms": 2 * LONG_MS}, {"min_compaction_lag_ms": 0}),
        ({"min.cleanable.dirty.ratio": 1}, {"min_cleanable_dirty_ratio": 0.1}),
        ({"min.cleanable.dirty.ratio": 1}, {"max_compaction_lag_ms": 1}),
    ],
    ids=["min.compaction.lag.ms", "min.cleanable.dirty.ratio", "max.compaction.lag.ms"],
)
def test_when_compaction_is_due(
    broker: BrokerProcess, topic: str, holds_back: Mapping[str, object], lets_go: Mapping[str, object]
) -> None:
    configs = {"cleanup.policy": "compact", "internal.segment.bytes": 500, "min.cleanable.dirty.ratio": 0}
    made = Topic(broker, topic, {**configs, **holds_back})
    made.produce(30)
    other = Topic(broker, f"{topic}-other", configs)
    other.produce(30)
    wait_until(lambda: len(other.records()) < 8, "the cleaner has looked")
    assert len(made.records()) == 30
    made.set(**lets_go)
    wait_until(lambda: len(made.records()) < 8, "it is compacted")


def test_delete_retention_ms(broker: BrokerProcess, topic: str) -> None:
    """A tombstone stays for a late consumer, until its time is over."""
    made = Topic(
        broker, topic, {"cleanup.policy": "compact", "internal.segment.bytes": 400, "min.cleanable.dirty.ratio": 0}
    )
    made.produce(3, key="dead")
    made.produce(1, key="dead", value=None)
    made.produce(20, key="k")
    wait_until(lambda: len(made.records()) < 8, "it is compacted")
    wait_until(lambda: made.records()[0] == (3, b"dead"), "nothing is left before the tombstone")
    made.set(delete_retention_ms=0)
    # A round may be running with the old setting: those after it use the new one.
    made.produce(20, key="k")
    wait_until(lambda: len(made.records()) < 8, "another round")
    # The horizon was set by the first round; later ones get the new one.
    made.produce(1, key="dead", value=None)
    made.produce(20, key="k")

    def tombstones() -> list[int]:
        made.produce(4, key="k")
        return [offset for offset, key in made.records() if key == b"dead"]

    wait_until(lambda: tombstones() == [], "the tombstone goes")


def kill_one(broker: BrokerProcess, role: str, killed: set[int]) -> None:
    """SIGKILL the first process of a role as soon as there is one that was not killed before, and note its id."""

    def living() -> dict[str, Any] | None:
        row = broker.processes(role)[0]
        return row if row["state"] in {"starting", "running"} and row["pid"] not in killed else None

    pid = wait_until(living, f"a {role} to kill")["pid"]
    killed.add(pid)
    os.kill(pid, signal.SIGKILL)


def test_nothing_is_lost_whoever_dies(broker: BrokerProcess, topic: str) -> None:
    """Cleaner and handlers are killed while segments are swapped; row `12`: no connection is dropped by the cleaner."""
    made = Topic(
        broker,
        topic,
        {"cleanup.policy": "compact", "internal.segment.bytes": 2000, "min.cleanable.dirty.ratio": 0,
         "file.delete.delay.ms": 1},
    )  # fmt: skip
    produced = 0
    killed: set[int] = set()
    for number in range(8):
        made.produce(15, key="k#")
        produced += 15
        role = "cleaner" if number % 4 else "handler"
        kill_one(broker, role, killed)
        found = made.records()
        newest = dict(reversed([(key, offset) for offset, key in reversed(found)]))
        assert {key: produced - 15 + int(key[1:]) for key in newest if key} == newest
        assert [offset for offset, _ in found] == sorted({offset for offset, _ in found})
    wait_until(lambda: len(made.records()) < 60, "it is compacted")
    assert all(row["restarts"] for row in broker.processes("cleaner"))
    checkpoint = made.directory.parent / "cleaner-offset-checkpoint"
    # It is written when all of the partition has been compacted.
    wait_until(lambda: checkpoint.exists() and f"{topic} 0 " in checkpoint.read_text(), "a checkpoint")
