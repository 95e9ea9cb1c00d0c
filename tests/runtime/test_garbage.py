"""Garbage collection: started by the loop, never repeated over the same many objects, and needed by no code."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from rotunda.broker.apis.table import API_TABLE
from rotunda.broker.protocol.api_keys import ApiKey
from rotunda.broker.runtime import garbage
from rotunda.broker.runtime.garbage import LONG_NS, OLD, GarbageSearch
from tests.support.fakes import FakeClock
from tests.support.groups.requests import Member, broker_with_groups, groups_of
from tests.support.large_requests import arrays_of, request_with
from tests.support.stepped_broker import Sent, SteppedBroker
from tests.support.transactional import TransactionalProducer
from tests.support.wire_messages import FETCH, FETCH_VERSION, fetch_body

pytestmark = pytest.mark.slow


class FakeCollector:
    """Replaces Python's: a search costs a microsecond for each object that is not set aside."""

    def __init__(self, clock: FakeClock) -> None:
        self.clock = clock
        self.thresholds: tuple[int, ...] = ()
        self.searches = 0
        self.objects = 0
        self.set_aside = 0
        self.searched: list[int] = []

    def set_threshold(self, *thresholds: int) -> None:
        self.thresholds = thresholds

    def get_count(self) -> tuple[int, int, int]:
        return 0, 0, self.searches

    def collect(self) -> None:
        self.searched.append(self.objects)
        self.clock.advance_ns(1000 * self.objects)
        self.searches = 0

    def freeze(self) -> None:
        self.set_aside += self.objects
        self.objects = 0


@pytest.fixture
def collector(monkeypatch: pytest.MonkeyPatch) -> FakeCollector:
    made = FakeCollector(FakeClock())
    monkeypatch.setattr(garbage, "gc", made)
    return made


def test_python_itself_never_looks_through_everything(collector: FakeCollector) -> None:
    GarbageSearch(collector.clock.monotonic_ns)
    assert collector.thresholds[2] > 1_000_000


def test_what_stands_when_the_loop_begins_is_never_looked_through(collector: FakeCollector) -> None:
    collector.objects = 1_000_000
    search = GarbageSearch(collector.clock.monotonic_ns)
    collector.searches = OLD
    search.run_once()
    assert collector.searched == [0]


def test_few_objects_are_looked_through_again_and_again(collector: FakeCollector) -> None:
    search = GarbageSearch(collector.clock.monotonic_ns)
    collector.objects = LONG_NS // 1000
    for count in range(3 * (OLD + 1)):
        collector.searches = count % (OLD + 1)
        search.run_once()
    assert len(collector.searched) == 3
    assert collector.set_aside == 0


def test_many_objects_are_looked_through_once(collector: FakeCollector) -> None:
    search = GarbageSearch(collector.clock.monotonic_ns)
    for _ in range(100):
        collector.objects += 14_000
        collector.searches = OLD
        search.run_once()
    assert collector.searched == [14_000] * 100
    assert collector.set_aside == 1_400_000


def test_few_come_between_two_searches_of_everything() -> None:
    """By Python's own count of the objects that survived the searches of younger ones."""
    before = gc.get_threshold()
    try:
        GarbageSearch(FakeClock().monotonic_ns)
        kept: list[list[None]] = []
        while gc.get_count()[2] < OLD and len(kept) < 100_000:
            kept.append([])
        assert len(kept) < 2 * 700 * 11 * OLD
    finally:
        gc.set_threshold(*before)
        gc.unfreeze()


HOT = {ApiKey.PRODUCE, ApiKey.FETCH}


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SteppedBroker]:
    directory: Path = tmp_path_factory.mktemp("garbage")
    made = SteppedBroker(directory)
    made.create("n1", 4)
    yield made
    made.close()


@pytest.fixture
def no_search() -> Iterator[None]:
    gc.collect()
    # Existing objects are not searched again and again.
    gc.freeze()
    gc.disable()
    yield
    gc.enable()
    gc.unfreeze()


@pytest.mark.usefixtures("no_search")
@pytest.mark.parametrize("api", [pytest.param(api, id=api.key.name) for api in API_TABLE if api.key not in HOT])
def test_no_api_leaves_objects_in_a_circle(broker: SteppedBroker, api: Any) -> None:
    """A few may: objects that are made once, when an API is first used."""
    key, version = api.key, api.max_version
    for path in arrays_of(key, version) or [()]:
        gc.collect()
        broker.client().send_frame(key, version, request_with(key, version, path, 600))
        broker.settle(1000)
        broker.forget_clients()
        assert gc.collect() < 300, path


@pytest.mark.usefixtures("no_search")
def test_nor_does_anything_that_lives_for_a_while(tmp_path: Path) -> None:
    """Topics, members, transactions, parked fetches, waiting joins: made and deleted forty times."""
    with broker_with_groups(tmp_path) as broker:
        live_and_go(broker, 0)
        gc.collect()
        for number in range(1, 40):
            live_and_go(broker, number)
        assert gc.collect() < 200


def settled(broker: SteppedBroker, sent: Sent) -> Sent:
    broker.settle()
    return sent


def live_and_go(broker: SteppedBroker, number: int) -> None:
    [group] = groups_of(broker, 0, 1, f"group{number}")
    member = Member(broker, group)
    member.join()
    other = Member(broker, group)
    other.take(settled(broker, other.join_request()))
    waiting = other.join_request()
    broker.settle(10)
    assert not waiting.answers
    broker.clock.advance_ms(120_000)
    broker.settle()
    broker.create(f"topic{number}", 2)
    producer = TransactionalProducer(broker, f"id{number}", newest=number % 2 == 1)
    assert producer.take(settled(broker, producer.init())) == 0
    if not producer.newest:
        settled(broker, producer.add([(f"topic{number}", 0)]))
    settled(broker, producer.produce([(f"topic{number}", 0, b"a")]))
    assert producer.take(settled(broker, producer.end(commit=number % 3 > 0))) == 0
    parked = broker.client().send(FETCH, FETCH_VERSION, fetch_body(f"topic{number}", 1, 0, max_wait_ms=500))
    broker.settle(3)
    assert not parked.answers
    broker.clock.advance_ms(1000)
    broker.delete(f"topic{number}")
    broker.settle()
    broker.forget_clients()
