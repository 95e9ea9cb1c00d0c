"""Timers: expired ones are called once, in order, and cancelled ones are not."""

from functools import partial

from rotunda.broker.scheduling.timers import AT_ONCE_NS, Timers
from tests.support.fakes import failing


class Clock:
    """A clock that does not advance."""

    def __init__(self) -> None:
        self.now_ns = 0

    def __call__(self) -> int:
        return self.now_ns


def test_due_timers_run_once_in_the_order_of_deadlines() -> None:
    called: list[str] = []
    timers = Timers(Clock())
    timers.after_ms(20, lambda: called.append("b"))
    timers.after_ms(10, lambda: called.append("a"))
    timers.after_ms(30, lambda: called.append("c"))
    assert timers.next_deadline_ns() == 10_000_000
    assert not timers.run_due(9_999_999)
    assert timers.run_due(20_000_000)
    assert called == ["a", "b"]
    assert not timers.run_due(20_000_000)
    assert timers.next_deadline_ns() == 30_000_000


def test_a_cancelled_timer_does_nothing_and_wakes_nobody() -> None:
    timers = Timers(Clock())
    timer = timers.after_ms(10, lambda: (_ for _ in ()).throw(AssertionError("cancelled")))
    timer.cancel()
    assert timers.next_deadline_ns() is None
    assert not timers.run_due(10**12)


def test_a_timer_may_set_and_cancel_others() -> None:
    called: list[str] = []
    clock = Clock()
    timers = Timers(clock)
    later = timers.after_ms(10, lambda: called.append("cancelled"))

    def first() -> None:
        called.append("first")
        later.cancel()
        timers.after_ms(0, lambda: called.append("at once"))

    timers.after_ms(5, first)
    clock.now_ns = 10_000_000
    assert timers.run_due(clock.now_ns)
    assert called == ["first", "at once"]


def test_timers_without_time_run_in_the_next_run() -> None:
    called: list[int] = []
    clock = Clock()
    timers = Timers(clock)

    def call(number: int) -> None:
        called.append(number)
        clock.now_ns += AT_ONCE_NS // 2

    for number in range(7):
        timers.after_ms(0, partial(call, number))
    turns = []
    while timers.next_deadline_ns() is not None:
        assert timers.run_due(clock.now_ns)
        turns.append(len(called))
    assert called == list(range(7))
    assert turns == [2, 4, 6, 7]


def test_a_fault_ends_one_timer_only() -> None:
    called: list[str] = []
    timers = Timers(Clock())
    timers.after_ms(1, failing(RuntimeError("on purpose")))
    timers.after_ms(2, lambda: called.append("next"))
    timers.run_due(5_000_000)
    assert called == ["next"]


def test_timers_that_were_cancelled_do_not_pile_up() -> None:
    timers = Timers(Clock())
    called: list[int] = []
    timers.after_ms(5, lambda: called.append(1))
    for _ in range(100_000):
        timers.after_ms(10_000, lambda: called.append(2)).cancel()
    assert len(timers._heap) <= 2048
    assert timers.run_due(5_000_000)
    assert called == [1]
