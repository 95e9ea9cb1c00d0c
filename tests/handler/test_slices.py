"""Tasks in slices: their share of a turn, their order, their waits, and the effect of a fault."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable, Generator
from typing import Any

import pytest

from rotunda.broker.scheduling.deferred import Deferred
from rotunda.broker.scheduling.slices import (
    BUDGET_NS,
    MOST_LONG,
    MOST_WAITING,
    SlicedWork,
    Slices,
    TooManyWaitError,
    Work,
)
from rotunda.broker.server_log.slow_turns import SlowTurns
from rotunda.shm.tables.current_request import CurrentRequest
from tests.support.fakes import FakeClock

MS = 1_000_000
IDENTITY = (1 << 32, 7)


class Bench:
    """Tasks that run one step per millisecond and append their name to ``log``."""

    def __init__(self) -> None:
        self.clock = FakeClock()
        self.current = CurrentRequest(memoryview(bytearray(CurrentRequest.bytes_needed(1))), 0, 0)
        turns = SlowTurns(logging.getLogger(__name__), self.clock.monotonic_ns)
        self.slices = Slices(self.clock.monotonic_ns, turns, self.current)
        self.log: list[str] = []
        self.results: list[Any] = []

    def steps(self, name: str, count: int) -> Work:
        for _ in range(count):
            self.log.append(name)
            self.clock.advance_ms(1)
            yield None
        return name

    def add(self, work: Work, lane: object = 1, *, exclusive: bool = False, size: int = 1) -> None:
        self.slices.add(self.work(work, lane, exclusive=exclusive, size=size))

    def work(self, work: Work, lane: object, *, exclusive: bool = False, size: int = 1) -> SlicedWork:
        return SlicedWork(
            work, lane, self.results.append, lambda: self.results.append("failed"), ("work", ""), IDENTITY,
            exclusive, size,
        )  # fmt: skip

    def turns(self, limit: int = 1000) -> int:
        """Run turns until no task remains; return the number of turns."""
        for count in range(limit):
            if not self.slices.run_once():
                return count
        raise AssertionError("it never ends")


@pytest.fixture
def bench() -> Bench:
    return Bench()


def test_a_run_has_no_more_than_its_budget(bench: Bench) -> None:
    bench.add(bench.steps("a", 100))
    before_ns = bench.clock.monotonic_ns()
    assert bench.slices.run_once()
    assert bench.clock.monotonic_ns() - before_ns <= BUDGET_NS + MS
    assert not bench.slices.is_idle
    assert bench.turns() == pytest.approx(100 * MS / BUDGET_NS, abs=2)
    assert bench.results == ["a"]
    assert bench.slices.is_idle


def test_requests_of_one_client_keep_their_order(bench: Bench) -> None:
    for name, count in (("first", 20), ("second", 1), ("third", 1)):
        bench.add(bench.steps(name, count), lane="one client")
    bench.turns()
    assert bench.results == ["first", "second", "third"]
    assert bench.log == ["first"] * 20 + ["second", "third"]


def test_changes_are_serial_and_reads_concurrent(bench: Bench) -> None:
    bench.add(bench.steps("change 1", 10), lane=1, exclusive=True)
    bench.add(bench.steps("change 2", 10), lane=2, exclusive=True)
    bench.add(bench.steps("question", 3), lane=3)
    bench.turns()
    assert bench.results == ["question", "change 1", "change 2"]
    changes = [name for name in bench.log if name != "question"]
    assert changes == ["change 1"] * 10 + ["change 2"] * 10


def test_only_so_many_long_ones_are_under_way_and_only_so_many_wait(bench: Bench) -> None:
    for lane in range(MOST_WAITING):
        bench.add(bench.steps(str(lane), 15), lane=lane)
    with pytest.raises(TooManyWaitError, match="1024 requests"):
        bench.add(bench.steps("one more", 1), lane="more")
    while not bench.slices.is_idle:
        for _ in range(100):
            bench.slices.run_once()
        had = Counter(bench.log)
        assert sum(1 for name, steps in had.items() if steps > 11 and name not in bench.results) <= MOST_LONG
    assert len(bench.results) == MOST_WAITING


def test_short_requests_do_not_wait_for_many_long_ones(bench: Bench) -> None:
    for lane in range(60):
        bench.add(bench.steps(f"long {lane}", 1000), lane=lane)
    for _ in range(200):
        bench.slices.run_once()
    bench.add(bench.steps("short", 8), lane="another client")
    for _ in range(10):
        bench.slices.run_once()
    assert bench.results == ["short"]


def test_long_requests_continue_however_many_short_ones_arrive(bench: Bench) -> None:
    bench.add(bench.steps("long", 50), lane="long")
    for number in range(300):
        bench.add(bench.steps("short", 1), lane=2 * number)
        bench.add(bench.steps("short", 1), lane=2 * number + 1)
        bench.slices.run_once()
    assert "long" in bench.results


def test_requests_without_a_client_end(bench: Bench) -> None:
    there = [True]
    closed: list[str] = []

    def asked(name: str) -> Work:
        try:
            yield from bench.steps(name, 100)
        finally:
            closed.append(name)

    for name in ("begun", "not begun"):
        work = bench.work(asked(name), "a client")
        work.is_wanted = lambda: there[0]
        bench.slices.add(work)
    bench.slices.run_once()
    there[0] = False
    bench.add(bench.steps("of the same", 1), lane="a client")
    bench.turns()
    assert "not begun" not in bench.log
    assert closed == ["begun"]
    assert bench.results == ["failed", "failed", "of the same"]
    assert bench.slices.waiting == 0


def test_a_large_request_waits_alone_or_not_at_all_and_keeps_no_small_one_out(bench: Bench) -> None:
    bench.add(bench.steps("huge", 1), lane=1, size=1 << 40)
    with pytest.raises(TooManyWaitError, match="1099511627776 bytes"):
        bench.add(bench.steps("large", 1), lane=2, size=1 << 20)
    bench.add(bench.steps("small", 1), lane=3)
    bench.turns()
    bench.add(bench.steps("large", 1), lane=2, size=1 << 20)
    bench.turns()
    assert bench.results == ["huge", "small", "large"]


def test_one_that_waits_for_another_process_keeps_nobody_from_beginning(bench: Bench) -> None:
    answers = [Deferred() for _ in range(MOST_LONG + 1)]

    def asks(deferred: Deferred) -> Generator[Deferred, Any, Any]:
        answer = yield deferred
        return answer

    for lane, deferred in enumerate(answers):
        bench.add(asks(deferred), lane=lane)
    bench.turns()
    assert bench.slices.is_idle
    bench.add(bench.steps("meanwhile", 1), lane="another")
    bench.turns()
    for number, deferred in enumerate(answers):
        deferred.complete(number + 1)
    bench.turns()
    assert bench.results == ["meanwhile", *range(1, MOST_LONG + 2)]


def test_a_fault_ends_its_own_work_alone(bench: Bench, caplog: pytest.LogCaptureFixture) -> None:
    def faulty(fault: Callable[[], Any]) -> Generator[None, None, Any]:
        yield None
        return fault()

    bench.add(faulty(lambda: 1 / 0), lane=1)
    bench.add(bench.steps("same client", 1), lane=1)
    bench.add(bench.steps("another client", 1), lane=2)
    bench.turns()
    assert sorted(bench.results) == ["another client", "failed", "same client"]
    assert "ZeroDivisionError" in caplog.text


def test_requests_of_peers_do_not_wait(bench: Bench) -> None:
    for lane in range(2 * MOST_LONG):
        bench.add(bench.steps("client", 50), lane=lane)
    bench.slices.run_once()
    bench.slices.add_now(bench.work(bench.steps("peer", 1), "peer"))
    for _ in range(2):
        bench.slices.run_once()
    assert bench.results == ["peer"]


def test_a_replacement_knows_the_request_of_the_last_slice(bench: Bench) -> None:
    seen: list[Any] = []

    def looks() -> Generator[None, None, None]:
        seen.append(bench.current.interrupted())
        yield None

    bench.add(looks())
    bench.turns()
    assert seen == [(0, IDENTITY)]
    assert bench.current.interrupted() == (0, None)
