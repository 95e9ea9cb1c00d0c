"""A target's own metrics: its idle time, and the mean over all handlers."""

import logging
from collections.abc import Iterator
from types import SimpleNamespace
from typing import cast

import pytest

from rotunda.broker.handler import handler_process
from rotunda.broker.handler.handler_process import INTERVAL_NS, HandlerMetrics
from rotunda.broker.handler.request_handler import RequestHandler
from rotunda.broker.ipc.process_context import ProcessContext
from rotunda.broker.runtime.child_process import Role
from rotunda.broker.runtime.signals import StopFlag
from rotunda.broker.server_log.slow_turns import SlowTurns
from rotunda.shm.metrics.process_metrics import MetricsReader, MetricsSegment, MetricsWriter
from rotunda.shm.tables.process_slots import HANDLER
from tests.support.fakes import FakeClock

HANDLERS = 2
MS = 1_000_000


class Loop:
    """A fake request loop with its bell and slot: a turn and a sleep last as long as configured."""

    def __init__(self, clock: FakeClock, stop: StopFlag, work_ms: int, sleep_ms: int) -> None:
        self.clock = clock
        self.stop = stop
        self.work_ms = work_ms
        self.sleep_ms = sleep_ms
        self.count = 0
        self.has_more = sleep_ms == 0
        self.sleeps: list[float] = []
        self.turns = SlowTurns(logging.getLogger(__name__), clock.monotonic_ns)

    def run_once(self) -> bool:
        self.count += 1
        self.clock.advance_ms(self.work_ms)
        if self.count == 100:
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
        self.last_beat_ns = self.clock.monotonic_ns()


@pytest.fixture
def stop() -> Iterator[StopFlag]:
    flag = StopFlag()
    yield flag
    flag.close()


@pytest.fixture
def pages() -> MetricsSegment:
    segment = MetricsSegment(memoryview(bytearray(MetricsSegment.bytes_needed(1, HANDLERS))), 1, HANDLERS)
    segment.initialise()
    return segment


def idle_fraction(
    monkeypatch: pytest.MonkeyPatch, pages: MetricsSegment, stop: StopFlag, index: int, times_ms: tuple[int, int]
) -> float:
    """Run a handler's loop with its own fake clock; return the growth of `idle_ns` per nanosecond."""
    clock = FakeClock()
    loop = Loop(clock, stop, *times_ms)
    monkeypatch.setattr(handler_process, "SystemClock", lambda: clock)
    context = SimpleNamespace(target_bells=[loop] * (HANDLERS + 1), slots=loop, handlers=HANDLERS)
    page = pages.page(HANDLER, index)
    metrics = HandlerMetrics(MetricsWriter(page), cast("RequestHandler", loop), 0)
    handler_process._serve(
        cast("RequestHandler", loop), cast("ProcessContext", context), (Role.HANDLER, index), metrics, stop
    )
    metrics.publish(clock.monotonic_ns())
    return MetricsReader(page).read().values["idle_ns", ""] / clock.monotonic_ns()


@pytest.mark.parametrize(
    ("times_ms", "fraction"), [((10, 30), 0.75), ((10, 0), 0.0), ((0, 300), 1.0)], ids=["some", "none", "all"]
)
def test_e01_idle_time_is_the_time_asleep_on_the_bell(
    monkeypatch: pytest.MonkeyPatch,
    pages: MetricsSegment,
    stop: StopFlag,
    times_ms: tuple[int, int],
    fraction: float,
) -> None:
    assert idle_fraction(monkeypatch, pages, stop, 0, times_ms) == fraction


def test_e01_the_page_is_written_now_and_then_and_continues_a_predecessors_counts(pages: MetricsSegment) -> None:
    page = pages.page(HANDLER, 0)
    for expected in (300, 600):
        clock = FakeClock()
        flag = StopFlag()
        metrics = HandlerMetrics(MetricsWriter(page), cast("RequestHandler", Loop(clock, flag, 0, 0)), 0)
        metrics.slept(300 * MS)
        assert not metrics.due(INTERVAL_NS - 1)
        assert metrics.due(INTERVAL_NS)
        metrics.publish(INTERVAL_NS)
        metrics.publish(2 * INTERVAL_NS)
        assert MetricsReader(page).read().values["idle_ns", ""] == expected * MS
        flag.close()
