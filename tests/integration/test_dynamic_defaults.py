"""Effects of a default of all topics, set and deleted at run time: seen by clients and in the files.

Each row of the table has the behaviour of a topic without settings of its own before, and after the default is set.
"""

import os
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
from tests.support.wire_messages import EARLIEST, create_topic, list_offset, produce

BROKER_SETTINGS = {"log.retention.check.interval.ms": 100}
MINUTE_MS, HOUR_MS, LONG_MS = 60_000, 3_600_000, 10**12
TOPIC, BROKER = 2, 4
MEBIBYTE = 1 << 20
OK, TOO_LARGE = 0, 10


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

    def send(self, value: bytes, *, age_ms: int = 0) -> int:
        """Produce one record of that age and return the error code."""
        batch = record_batch([value], timestamp_ms=int(time.time() * 1000) - age_ms)
        return produce(self._wire, self._name, 0, batch).error_code

    def send_all(self, count: int, size: int, *, age_ms: int = 0) -> None:
        assert [self.send(os.urandom(size), age_ms=age_ms) for _ in range(count)] == [OK] * count

    def start(self) -> int:
        return list_offset(self._wire, self._name, 0, EARLIEST)[1]

    def segments(self) -> int:
        return len(list(self._directory.glob("*.log")))


def segments_of_ages(topic: Topic) -> object:
    for age_ms in (LONG_MS - MINUTE_MS, 0):
        topic.send_all(1, 10, age_ms=age_ms)
    return topic.segments()


def expires(topic: Topic) -> object:
    topic.send_all(3, 700_000, age_ms=2 * HOUR_MS)
    wait_until(topic.start, "the oldest segment has expired")
    return True


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


ROWS = (
    Row("message.max.bytes", "1000", lambda topic: topic.send(bytes(2000)), OK, TOO_LARGE),
    # The random part of a roll's age is less than a minute once in 16 million times.
    Row("log.roll.jitter.ms", str(LONG_MS), segments_of_ages, 1, 2, {"log.roll.ms": str(LONG_MS)}),
    Row("log.retention.ms", str(HOUR_MS), stays, False, True, {"log.segment.bytes": str(MEBIBYTE)}, expires),
)


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
