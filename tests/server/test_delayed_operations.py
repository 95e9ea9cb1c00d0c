"""What waits is tried when it should be, answered at its deadline, and let go of (``E06``)."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from broker.server.delayed_operations import DelayedOperation, DelayedOperations


class Waiting:
    """An operation that completes when it is told to, and notes each try."""

    def __init__(self, deadline_ns: int, rows: tuple[int, ...] = (), fault: Exception | None = None) -> None:
        self.tries: list[bool] = []
        self.ready = False
        self.given_up = 0
        self.fault = fault
        self.operation = DelayedOperation(self.try_complete, deadline_ns, self.give_up, rows)

    def try_complete(self, final: bool) -> bool:
        self.tries.append(final)
        if self.fault is not None:
            raise self.fault
        return self.ready or final

    def give_up(self) -> None:
        self.given_up += 1


@pytest.fixture
def flags() -> dict[int, bool]:
    return {}


@pytest.fixture
def delayed(flags: dict[int, bool]) -> DelayedOperations:
    return DelayedOperations(flags.__setitem__)


def test_the_flag_is_up_before_the_first_try(flags: dict[int, bool]) -> None:
    """Else an append between the look and the flag would wake nobody."""
    seen: list[dict[int, bool]] = []
    delayed = DelayedOperations(flags.__setitem__)

    def look(final: bool) -> bool:  # noqa: ARG001
        seen.append(dict(flags))
        return False

    delayed.watch(DelayedOperation(look, 10, lambda: None, (3, 4)))
    assert seen == [{3: True, 4: True}]


def test_a_row_that_moves_tries_its_watchers_only(delayed: DelayedOperations, flags: dict[int, bool]) -> None:
    one, other = Waiting(10, (1,)), Waiting(10, (2,))
    delayed.watch(one.operation)
    delayed.watch(other.operation)
    one.ready = other.ready = True
    delayed.row_advanced(1)
    assert one.operation.done
    assert not other.operation.done
    assert flags == {1: False, 2: True}
    delayed.row_advanced(1)
    assert len(one.tries) == 2


def test_a_flag_comes_down_with_the_last_watcher(delayed: DelayedOperations, flags: dict[int, bool]) -> None:
    first, second = Waiting(10, (1,)), Waiting(20, (1,))
    delayed.watch(first.operation)
    delayed.watch(second.operation)
    delayed.expire(10)
    assert flags == {1: True}
    delayed.expire(20)
    assert flags == {1: False}
    assert first.tries == second.tries == [False, True]
    assert delayed.next_deadline_ns() is None


def test_deadlines_are_kept_in_order(delayed: DelayedOperations) -> None:
    waiting = [Waiting(deadline) for deadline in (30, 10, 20)]
    for each in waiting:
        delayed.watch(each.operation)
    assert delayed.next_deadline_ns() == 10
    delayed.expire(20)
    assert [each.operation.done for each in waiting] == [False, True, True]
    assert delayed.next_deadline_ns() == 30


def test_what_waits_for_another_process_is_tried_on_every_change(delayed: DelayedOperations) -> None:
    waiting = Waiting(100)
    delayed.watch(waiting.operation)
    delayed.something_changed()
    waiting.ready = True
    delayed.something_changed()
    delayed.something_changed()
    assert waiting.tries == [False, False]
    delayed.expire(100)
    assert waiting.tries == [False, False]


@pytest.mark.parametrize(
    "happens",
    [
        lambda delayed: delayed.row_advanced(1),
        lambda delayed: delayed.expire(10),
    ],
)
def test_a_fault_closes_one_connection_and_no_more(
    delayed: DelayedOperations,
    flags: dict[int, bool],
    happens: Callable[[DelayedOperations], None],
    caplog: pytest.LogCaptureFixture,
) -> None:
    broken, good = Waiting(10, (1,)), Waiting(10, (1,))
    delayed.watch(broken.operation)
    delayed.watch(good.operation)
    broken.fault = FileNotFoundError("segment")
    good.ready = True
    happens(delayed)
    assert broken.given_up == 1
    assert good.operation.done
    assert flags == {1: False}
    assert "segment" in caplog.text
    delayed.expire(10)
    assert broken.given_up == 1


def test_an_operation_without_an_answer_at_its_deadline_is_given_up(
    delayed: DelayedOperations, caplog: pytest.LogCaptureFixture
) -> None:
    given_up: list[int] = []
    delayed.watch(DelayedOperation(lambda _: False, 10, lambda: given_up.append(1)))
    delayed.expire(10)
    assert given_up == [1]
    assert "deadline" in caplog.text


def test_answered_operations_do_not_pile_up_behind_one_that_waits(
    delayed: DelayedOperations, flags: dict[int, bool]
) -> None:
    waiting = Waiting(1000, (7,))
    delayed.watch(waiting.operation)
    for number in range(2000):
        each = Waiting(10_000 + number, (1, 2))
        delayed.watch(each.operation)
        each.ready = True
        delayed.row_advanced(1)
        delayed.expire(number % 100)
    assert len(delayed) < 1000
    delayed.expire(1000)
    assert flags[7] is False
    delayed.expire(20_000)
    assert flags == {1: False, 2: False, 7: False}
    assert len(delayed) == 0
