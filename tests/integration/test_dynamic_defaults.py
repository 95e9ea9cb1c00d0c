"""Effects of a default of all topics, set and deleted at run time: seen by clients and in the files.

Each row of the table has the behaviour of a topic without settings of its own before, and after the default is set.
"""

import os
import random
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

import pytest

from rotunda.broker.protocol.api_keys import ApiKey
from tests.support.broker_process import BrokerProcess
from tests.support.deadline import wait_until
from tests.support.described_requests import ask
from tests.support.record_batches import record_batch
from tests.support.wire_client import WireClient
from tests.support.wire_messages import EARLIEST, create_topic, fetch, list_offset, produce

BROKER_SETTINGS = {"log.retention.check.interval.ms": 100}
MINUTE_MS, HOUR_MS, LONG_MS = 60_000, 3_600_000, 10**12
TOPIC, BROKER = 2, 4
MEBIBYTE = 1 << 20
OK, TOO_LARGE, NOT_ENOUGH_REPLICAS, INVALID_TIMESTAMP, STORAGE_ERROR, INVALID_RECORD = 0, 10, 19, 32, 56, 87
CODEC_BITS, LOG_APPEND_TIME_BIT = 7, 8
GZIP = 1
#: Text that a better compressor makes much shorter than a quick one.
WORDS = " ".join(random.Random(1).choices([f"word{number:03}" for number in range(500)], k=20_000)).encode()


def alter(wire: WireClient, resource_type: int, resource: str, name: str, value: str | None) -> None:
    """Set, or with None delete, a setting of a topic or of all brokers."""
    config = {"name": name, "config_operation": 0 if value is not None else 1, "value": value}
    resources = [{"resource_type": resource_type, "resource_name": resource, "configs": [config]}]
    [outcome] = ask(wire, ApiKey.INCREMENTAL_ALTER_CONFIGS, 1, {"resources": resources}).responses
    assert outcome.error_code == 0, outcome.error_message


class Topic:
    """A new topic, without settings of its own except that some never expire their records."""

    def __init__(self, broker: BrokerProcess, wire: WireClient, name: str, *, keeps: bool) -> None:
        self._wire = wire
        self._name = name
        self._directory = Path(broker.status()["data_dir"]) / f"{name}-0"
        create_topic(wire, name, 1)
        if not keeps:
            alter(wire, TOPIC, name, "retention.ms", None)

    def send(self, value: bytes = b"v", *, age_ms: int = 0, acks: int = 1, codec: int = 0) -> int:
        """Produce one record of that age and return the error code."""
        timestamp_ms = int(time.time() * 1000) - age_ms
        batch = record_batch([value], timestamp_ms=timestamp_ms, codec=codec)
        return produce(self._wire, self._name, 0, batch, acks).error_code

    def send_all(self, count: int, size: int, *, age_ms: int = 0) -> None:
        assert [self.send(os.urandom(size), age_ms=age_ms) for _ in range(count)] == [OK] * count

    def attributes(self) -> int:
        """Return those of the first batch, as it is stored."""
        return int.from_bytes(fetch(self._wire, self._name, 0, 0).records[21:23], "big")

    def stored_bytes(self) -> int:
        return len(fetch(self._wire, self._name, 0, 0).records)

    def start(self) -> int:
        return list_offset(self._wire, self._name, 0, EARLIEST)[1]

    def files(self, suffix: str) -> list[Path]:
        return sorted(self._directory.glob(f"*{suffix}"))


def error(**options: int) -> Callable[[Topic], object]:
    return lambda topic: topic.send(**options)


def stored_codec(topic: Topic) -> object:
    assert topic.send() == OK
    return topic.attributes() & CODEC_BITS


def stored_time(topic: Topic) -> object:
    assert topic.send() == OK
    return topic.attributes() & LOG_APPEND_TIME_BIT


def stored_bytes(topic: Topic) -> int:
    assert topic.send(WORDS) == OK
    return topic.stored_bytes()


def large_inside(topic: Topic) -> object:
    return topic.send(bytes(100_000), codec=GZIP)


def segments_of(count: int, size: int) -> Callable[[Topic], object]:
    def observe(topic: Topic) -> object:
        topic.send_all(count, size)
        return len(topic.files(".log"))

    return observe


def segments_of_ages(*ages_ms: int) -> Callable[[Topic], object]:
    def observe(topic: Topic) -> object:
        for age_ms in ages_ms:
            topic.send_all(1, 10, age_ms=age_ms)
        return len(topic.files(".log"))

    return observe


def has_index(topic: Topic) -> object:
    """Check the second segment: each uses the setting that was in force when it was created, as in Kafka."""
    topic.send_all(22, 100_000)
    return topic.files(".index")[1].stat().st_size > 0


def set_aside(topic: Topic) -> object:
    topic.send_all(2, 700_000)
    file = topic.files(".log")[1].stat()
    return max(file.st_size, file.st_blocks * 512) >= MEBIBYTE


def ends_by_its_index(topic: Topic) -> object:
    topic.send_all(2, 700_000)
    topic.send_all(12, 10_000)
    return len(topic.files(".log")) > 2


def expires(topic: Topic) -> object:
    topic.send_all(3, 700_000, age_ms=2 * HOUR_MS)
    wait_until(topic.start, "the oldest segment has expired")
    return True


def leaves_files(topic: Topic) -> object:
    expires(topic)
    return bool(topic.files(".deleted"))


def leaves_no_files(topic: Topic) -> object:
    expires(topic)
    wait_until(lambda: not topic.files(".deleted"), "files of expired segments are gone")
    return False


def stays(topic: Topic) -> object:
    topic.send_all(3, 700_000, age_ms=2 * HOUR_MS)
    return topic.start() > 0


class Row(NamedTuple):
    """A setting, its effects before and after, and the settings that must be set before."""

    name: str
    value: str
    observe: Callable[[Topic], object]
    before: object
    after: object
    given: Mapping[str, str] = {}
    observe_after: Callable[[Topic], object] | None = None


SMALL = {"log.segment.bytes": str(MEBIBYTE)}
ROWS = (
    Row("message.max.bytes", "1000", lambda topic: topic.send(bytes(2000)), OK, TOO_LARGE),
    Row("min.insync.replicas", "2", error(acks=-1), OK, NOT_ENOUGH_REPLICAS),
    Row("log.cleanup.policy", "compact", error(), OK, INVALID_RECORD),
    Row("log.message.timestamp.type", "LogAppendTime", stored_time, 0, LOG_APPEND_TIME_BIT),
    Row("log.message.timestamp.before.max.ms", str(HOUR_MS), error(age_ms=2 * HOUR_MS), OK, INVALID_TIMESTAMP),
    Row("log.message.timestamp.after.max.ms", str(3 * HOUR_MS), error(age_ms=-2 * HOUR_MS), INVALID_TIMESTAMP, OK),
    Row("compression.type", "gzip", stored_codec, 0, GZIP),
    Row("message.max.uncompressed.bytes", "5000", large_inside, OK, TOO_LARGE,
        {"compression.type": "lz4", "message.max.bytes": "5000"}),
    Row("max.decompressed.message.bytes", "5000", large_inside, OK, INVALID_RECORD),
    Row("log.segment.bytes", str(MEBIBYTE), segments_of(3, 700_000), 1, 3),
    Row("log.index.interval.bytes", str(10 * MEBIBYTE), has_index, True, False, SMALL),
    Row("log.index.size.max.bytes", "100", ends_by_its_index, False, True, SMALL),
    Row("log.preallocate", "true", set_aside, False, True, SMALL),
    Row("log.roll.ms", str(HOUR_MS // 2), segments_of_ages(HOUR_MS, 0), 1, 2),
    # The random part of a roll's age is less than a minute once in 16 million times.
    Row("log.roll.jitter.ms", str(LONG_MS), segments_of_ages(LONG_MS - MINUTE_MS, 0), 1, 2,
        {"log.roll.ms": str(LONG_MS)}),
    Row("log.retention.ms", str(HOUR_MS), stays, False, True, SMALL, expires),
    Row("log.retention.bytes", "1", stays, False, True, SMALL, expires),
    Row("log.segment.delete.delay.ms", "0", leaves_files, True, False,
        {**SMALL, "log.retention.ms": str(HOUR_MS)}, leaves_no_files),
)  # fmt: skip


@pytest.fixture
def defaults(wire: WireClient) -> Iterator[Callable[[str, str | None], None]]:
    """Yield a function that sets, or with None deletes, a default of all brokers; at the end there are none."""
    names: set[str] = set()

    def set_default(name: str, value: str | None) -> None:
        names.add(name)
        alter(wire, BROKER, "", name, value)

    yield set_default
    for name in names:
        alter(wire, BROKER, "", name, None)


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.name)
def test_a_default_is_in_force_as_soon_as_it_is_set(
    row: Row,
    broker: BrokerProcess,
    wire: WireClient,
    topic: str,
    defaults: Callable[[str, str | None], None],
) -> None:
    """KIP-226: also for topics that are there already, and no longer than it is set."""
    for name, value in row.given.items():
        defaults(name, value)
    keeps = row.observe_after is None
    assert row.observe(Topic(broker, wire, f"{topic}-before", keeps=keeps)) == row.before
    there_already = Topic(broker, wire, f"{topic}-after", keeps=keeps)
    defaults(row.name, row.value)
    assert (row.observe_after or row.observe)(there_already) == row.after
    defaults(row.name, None)
    assert row.observe(Topic(broker, wire, f"{topic}-again", keeps=keeps)) == row.before


@pytest.mark.parametrize(
    ("codec", "quick", "thorough"), [("gzip", "1", "9"), ("lz4", "1", "12"), ("zstd", "-100", "19")]
)
def test_levels_of_compression(
    broker: BrokerProcess,
    wire: WireClient,
    topic: str,
    defaults: Callable[[str, str | None], None],
    codec: str,
    quick: str,
    thorough: str,
) -> None:
    """KIP-390."""
    defaults("compression.type", codec)
    one = Topic(broker, wire, topic, keeps=True)
    defaults(f"compression.{codec}.level", quick)
    long = stored_bytes(one)
    defaults(f"compression.{codec}.level", thorough)
    other = Topic(broker, wire, f"{topic}-other", keeps=True)
    assert stored_bytes(other) < long


def test_the_room_that_is_left_on_the_disk(
    broker: BrokerProcess, wire: WireClient, topic: str, defaults: Callable[[str, str | None], None]
) -> None:
    """The disk is looked at now and then."""
    one = Topic(broker, wire, topic, keeps=True)
    assert one.send() == OK
    defaults("storage.free.min.ratio", "1")
    defaults("storage.free.min.bytes", str(1 << 62))
    try:
        wait_until(lambda: one.send() == STORAGE_ERROR, "records are refused")
    finally:
        defaults("storage.free.min.bytes", None)
        defaults("storage.free.min.ratio", None)
        wait_until(lambda: one.send() == OK, "records are taken")
