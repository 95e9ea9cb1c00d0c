"""Parked operations are retried only when necessary, completed at their deadline, and released (``E06``)."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Callable, Collection, Sequence

import pytest

from rotunda.broker.scheduling import purgatory
from rotunda.broker.scheduling.purgatory import SLICE_NS, DelayedOperation, Purgatory
from rotunda.broker.scheduling.timers import Timers
from tests.support.fakes import FakeClock


class Waiting:
    """An operation completed by the test, which records each try and its moved rows."""

    def __init__(self, deadline_ns: int, rows: Collection[int] = (), fault: Exception | None = None) -> None:
        self.tries: list[bool] = []
        self.moved: list[list[int]] = []
        self.ready = False
        self.given_up = 0
        self.fault = fault
        self.operation = DelayedOperation(self.try_complete, deadline_ns, self.give_up, rows)

    def try_complete(self, final: bool) -> bool:
        self.tries.append(final)
        self.moved.append(sorted(self.operation.moved))
        self.operation.moved.clear()
        if self.fault is not None:
            raise self.fault
        return self.ready or final

    def give_up(self) -> None:
        self.given_up += 1


class Purgatory(Purgatory):
    """A purgatory with accessible flags."""

    def __init__(self) -> None:
        self.flags: set[int] = set()
        self.clock = FakeClock(monotonic_ns=1)
        self.timers = Timers(self.clock.monotonic_ns)
        super().__init__(self.flags.update, self.flags.remove, self.timers)

    def turn_at(self, now_ns: int) -> bool:
        self.clock.advance_ns(max(0, now_ns - self.clock.monotonic_ns()))
        return self.turn_now()

    def turn_now(self) -> bool:
        """Run a turn like a handler: expired operations first."""
        was_due = self.timers.run_due(self.clock.monotonic_ns())
        return self.run_once() or was_due


@pytest.fixture
def delayed() -> Purgatory:
    return Purgatory()


def test_an_operation_is_tried_once_a_run_however_many_of_its_rows_have_moved(delayed: Purgatory) -> None:
    """1,000 fetches of 100 partitions each: the cost grows with the moved rows and their watchers."""
    waiting = [Waiting(1000, range(100)) for _ in range(1000)]
    for each in waiting:
        delayed.watch(each.operation)
    before = delayed.tries
    delayed.rows_moved([5])
    delayed.rows_moved([7, 5])
    delayed.run_once()
    assert delayed.tries - before == 1000
    assert all(each.moved[-1] == [5, 5, 7] for each in waiting)
    delayed.run_once()
    assert delayed.tries - before == 1000


def test_a_run_ends_with_its_time_and_the_next_continues(delayed: Purgatory) -> None:
    order: list[int] = []

    def slow(number: int) -> Callable[[bool], bool]:
        def try_complete(final: bool) -> bool:
            order.append(number)
            delayed.clock.advance_ns(SLICE_NS // 4)
            return final

        return try_complete

    for number in range(10):
        delayed.watch(DelayedOperation(slow(number), 1000 * SLICE_NS, lambda: None, (1,)))
    order.clear()
    delayed.rows_moved([1])
    turns = 0
    while delayed.has_woken:
        assert delayed.run_once()
        turns += 1
        assert len(order) <= 4 * turns
    assert order == list(range(10))
    assert turns == 3
    order.clear()
    delayed.clock.advance_ns(1000 * SLICE_NS)
    while delayed.turn_now():
        pass
    assert order == list(range(10))


def test_operations_waiting_for_another_process_are_tried_once_a_run_with_changes(delayed: Purgatory) -> None:
    """For any number of changes: a thousand responses of owners do not try each waiting request a thousand times."""
    waiting = Waiting(100)
    delayed.watch(waiting.operation)
    for _ in range(1000):
        delayed.something_changed()
    delayed.run_once()
    waiting.ready = True
    delayed.something_changed()
    delayed.run_once()
    delayed.something_changed()
    delayed.run_once()
    assert waiting.tries == [False, False]
    delayed.turn_at(100)
    assert waiting.tries == [False, False]


@pytest.mark.parametrize(
    "happens",
    [
        lambda delayed: delayed.rows_moved([1]),
        lambda delayed: delayed.clock.advance_ns(10),
        lambda delayed: delayed.anything_moved(),
    ],
)
def test_a_fault_closes_one_connection_and_no_more(
    delayed: Purgatory, happens: Callable[[Purgatory], None], caplog: pytest.LogCaptureFixture
) -> None:
    broken, good = Waiting(10, (1,)), Waiting(10, (1,))
    delayed.watch(broken.operation)
    delayed.watch(good.operation)
    broken.fault = FileNotFoundError("segment")
    good.ready = True
    happens(delayed)
    delayed.turn_now()
    assert broken.given_up == 1
    assert good.operation.done
    assert "segment" in caplog.text
    delayed.turn_at(20)
    assert broken.given_up == 1


def test_an_operation_without_a_response_at_its_deadline_is_given_up(
    delayed: Purgatory, caplog: pytest.LogCaptureFixture
) -> None:
    given_up: list[int] = []
    delayed.watch(DelayedOperation(lambda _: False, 10, lambda: given_up.append(1)))
    delayed.turn_at(10)
    assert given_up == [1]
    assert "deadline" in caplog.text


def test_completed_operations_do_not_accumulate(delayed: Purgatory) -> None:
    waiting = Waiting(10_000, (7,))
    delayed.watch(waiting.operation)
    for number in range(2000):
        each = Waiting(100_000 + number, (1, 2))
        delayed.watch(each.operation)
        each.ready = True
        delayed.rows_moved([1])
        delayed.run_once()
    assert len(delayed.timers) < 1500
    delayed.turn_at(10_000)
    assert waiting.operation.done
    assert delayed.timers.next_deadline_ns() is None
    delayed.rows_moved([1, 2, 7])
    assert delayed.flags == set()


def test_a_completed_operation_is_released_at_once(delayed: Purgatory) -> None:
    """Its deadline may be far off, and it may refer to thousands of partitions."""

    class Knowledge:
        rows: Sequence[int] = (1, 2)

        def try_complete(self, final: bool) -> bool:
            return final or delayed.tries > 1

    delayed.watch(Waiting(1000).operation)
    knowledge = Knowledge()
    known = weakref.ref(knowledge)
    delayed.watch(DelayedOperation(knowledge.try_complete, 1_000_000, lambda: None, knowledge.rows))
    del knowledge
    assert known() is not None
    delayed.rows_moved([1])
    delayed.run_once()
    gc.collect()
    assert known() is None


def test_operations_and_watched_rows_have_limits(delayed: Purgatory, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(purgatory, "MOST_OPERATIONS", 2)
    monkeypatch.setattr(purgatory, "MOST_WATCHED_ROWS", 10)
    first, second = Waiting(100, range(6)), Waiting(200, range(3))
    delayed.watch(first.operation)
    assert (delayed.has_room(4), delayed.has_room(5)) == (True, False)
    delayed.watch(second.operation)
    assert (delayed.waiting, delayed.watched_rows, delayed.has_room(0)) == (2, 9, False)
    delayed.turn_at(100)
    assert (delayed.waiting, delayed.watched_rows, delayed.has_room(7)) == (1, 3, True)
    delayed.turn_at(200)
    assert (delayed.waiting, delayed.watched_rows) == (0, 0)
