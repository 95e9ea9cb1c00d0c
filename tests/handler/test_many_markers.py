"""Markers for very many partitions are requested a few at a time, with any outcome of each."""

from __future__ import annotations

import random
from collections.abc import Callable

from rotunda.broker.coordinator.transaction.markers import AT_ONCE, TransactionEnd
from rotunda.broker.coordinator.transaction.transaction import PREPARE_COMMIT, TransactionMetadata
from rotunda.broker.partitions.transaction_messages import Marker
from rotunda.broker.scheduling.timers import Timers
from tests.support.fakes import FakeClock

PLACES = [("topic", index) for index in range(AT_ONCE * 5 + 3)]


class Desk:
    """Partitions whose markers the test writes."""

    def __init__(self) -> None:
        self.gone: set[tuple[str, int]] = set()
        self.asked: list[tuple[tuple[str, int], Callable[[int], None]]] = []
        self.most = 0

    def owner_of(self, place: tuple[str, int]) -> int | None:
        return None if place in self.gone else 0

    def write_marker(self, owner: int, marker: Marker, done: Callable[[int], None]) -> None:
        assert owner == 0
        self.asked.append(((marker.topic, marker.partition), done))
        self.most = max(self.most, len(self.asked))

    def coordinator_epoch(self, partition: int) -> int:
        return partition

    def new_producer_id(self, done: Callable[[int, int], None]) -> None:
        raise AssertionError(done)


def ended(clock: FakeClock, desk: Desk, answer: Callable[[tuple[str, int]], int]) -> list[tuple[str, int]]:
    """End a transaction of all partitions; return the partitions of the requested markers, in order."""
    metadata = TransactionMetadata(1, 0, 60_000, 0, PREPARE_COMMIT, frozenset(PLACES))
    timers = Timers(clock.monotonic_ns)
    done: list[bool] = []
    order = []
    TransactionEnd(metadata, 0, desk, timers, lambda: True).start(lambda: done.append(True))
    for _ in range(1000):
        if done:
            break
        asked, desk.asked = desk.asked, []
        for place, answered in asked:
            order.append(place)
            answered(answer(place))
        assert len(desk.asked) == 0, "more are asked for in a later turn"
        clock.advance_ms(1)
        timers.run_due(clock.monotonic_ns())
    assert done == [True]
    return order


def test_markers_are_asked_for_a_few_at_a_time() -> None:
    desk = Desk()
    assert ended(FakeClock(), desk, lambda _: 0) == PLACES
    assert desk.most == AT_ONCE


def test_deleted_and_failed_partitions_do_not_delay_others() -> None:
    """A failed one is retried while the others continue."""
    desk = Desk()
    chance = random.Random(10)
    desk.gone = set(chance.sample(PLACES, 40)) | set(PLACES[AT_ONCE : 3 * AT_ONCE])
    failing = set(chance.sample(PLACES, 20))

    def answer(place: tuple[str, int]) -> int:
        if place not in failing:
            return 0
        failing.remove(place)
        return 56

    order = ended(FakeClock(), desk, answer)
    assert set(order) == set(PLACES) - desk.gone
    assert desk.most <= AT_ONCE + 20
