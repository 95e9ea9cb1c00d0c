"""The loop of a target's process: its turns and sleeps, the pauses after faults, and its page of metrics."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest

from rotunda.broker.handler import handler_process
from rotunda.broker.handler.handler_process import INTERVAL_NS, HandlerMetrics
from rotunda.broker.runtime.child_process import MOST_FAULTS, Role
from rotunda.broker.runtime.signals import StopFlag
from rotunda.broker.server_log.slow_turns import SlowTurns
from rotunda.shm.metrics.process_metrics import MetricsReader, MetricsSegment, MetricsWriter
from rotunda.shm.tables.process_slots import HANDLER
from tests.support.fakes import FakeClock


class Loop:
    """A request loop with its bell and slot: turns and sleeps last as configured, and the first turns may fail.

    It stops at its last turn.
    """

    def __init__(self, last: int = 1, work_ms: int = 0, sleep_ms: int = 1, faults: int = 0) -> None:
        self.clock, self.stop = FakeClock(), StopFlag()
        self.last, self.work_ms, self.sleep_ms, self.faults = last, work_ms, sleep_ms, faults
        self.count = 0
        self.sleeps: list[float] = []
        self.turns = SlowTurns(logging.getLogger(__name__), self.clock.monotonic_ns)
        self.has_more = False

    def run_once(self) -> bool:
        self.has_more = bool(self.faults) or not self.sleep_ms
        if self.faults:
            self.faults -= 1
            raise ZeroDivisionError("ours")
        self.count += 1
        self.clock.advance_ms(self.work_ms)
        if self.count == self.last:
            self.stop.set()
        return True

    def wait_ms(self) -> int:
        return 300

    def counters(self) -> dict[str, int]:
        return {"requests_handled": self.count}

    def gauges(self) -> dict[str, int]:
        return {"longest_turn_ns": self.turns.longest_ns}

    def take(self) -> bool:
        return False

    def wait(self, timeout_s: float) -> bool:
        self.sleeps.append(timeout_s)
        self.clock.advance_ms(self.sleep_ms)
        return True

    def beat(self, *_: object) -> None:
        """Have the time of the last beat recorded."""


@pytest.fixture
def page() -> memoryview:
    """Return the metrics page of a handler."""
    segment = MetricsSegment(memoryview(bytearray(MetricsSegment.bytes_needed(1, 2))), 1, 2)
    segment.initialise()
    return segment.page(HANDLER, 0)


@pytest.fixture
def run(page: memoryview, monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """Yield a function that runs a loop to its end, and publishes its metrics."""
    made: list[Loop] = []

    def run_loop(**options: int) -> Loop:
        loop: Any = Loop(**options)
        made.append(loop)
        monkeypatch.setattr(handler_process, "SystemClock", lambda: loop.clock)
        context: Any = SimpleNamespace(target_bells=[loop] * 3, slots=loop, handlers=2)
        metrics = HandlerMetrics(MetricsWriter(page), loop, 0)
        handler_process._serve(loop, context, (Role.HANDLER, 0), metrics, loop.stop)
        metrics.publish(loop.clock.monotonic_ns())
        return made[-1]

    yield run_loop
    for loop in made:
        loop.stop.close()


def idle_ns(page: memoryview) -> int:
    return int(MetricsReader(page).read().values["idle_ns", ""])


def test_a_turn_with_a_fault_is_followed_by_another_at_once(run: Any) -> None:
    """Not after 300 ms: for requests already read, no bell rings a second time."""
    assert run(faults=1).sleeps == [0.3]


def test_pauses_after_faults_in_a_row_grow(run: Any) -> None:
    *pauses, last = run(faults=MOST_FAULTS - 1).sleeps
    assert last == 0.3
    assert pauses == sorted(pauses)
    assert pauses[0] <= 0.001
    assert pauses[-1] == 0.3
    with pytest.raises(ZeroDivisionError):
        run(faults=MOST_FAULTS)


@pytest.mark.parametrize(
    ("work_ms", "sleep_ms", "fraction"), [(10, 30, 0.75), (10, 0, 0.0), (0, 300, 1.0)], ids=["some", "none", "all"]
)
def test_e01_idle_time_is_the_time_asleep_on_the_bell(
    run: Any, page: memoryview, work_ms: int, sleep_ms: int, fraction: float
) -> None:
    loop = run(last=100, work_ms=work_ms, sleep_ms=sleep_ms)
    assert idle_ns(page) / loop.clock.monotonic_ns() == fraction


def test_e01_the_page_is_written_at_intervals_and_continues_a_predecessors_counts(page: memoryview) -> None:
    for expected_ms in (300, 600):
        loop: Any = Loop()
        metrics = HandlerMetrics(MetricsWriter(page), loop, 0)
        metrics.slept(300_000_000)
        assert not metrics.due(INTERVAL_NS - 1)
        assert metrics.due(INTERVAL_NS)
        metrics.publish(INTERVAL_NS)
        metrics.publish(2 * INTERVAL_NS)
        assert idle_ns(page) == expected_ms * 1_000_000
        loop.stop.close()
