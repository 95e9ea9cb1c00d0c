"""The watchdog: processes that it names, that it kills, and pauses that are not their own fault."""

from __future__ import annotations

import logging
import subprocess
import sys
from types import SimpleNamespace
from typing import Any

import pytest

from rotunda.broker.runtime import stack_dumps
from rotunda.broker.runtime.child_process import Role
from rotunda.broker.supervisor import watchdog
from rotunda.broker.supervisor.watchdog import LOOK_MS, NEVER, Watchdog
from rotunda.shm.tables.process_slots import ProcessSlots
from tests.support.deadline import wait_until
from tests.support.fakes import FakeClock

TIMEOUT_MS = 10_000


class Handler:
    """A child as far as the watchdog looks at it."""

    role, index, label, pid = Role.HANDLER, 0, "handler 0", 4711

    def __init__(self) -> None:
        self.generation = 1
        self.is_alive = self.ready = True
        self.killed = 0

    def kill(self) -> None:
        self.killed += 1


class Bench:
    """A watchdog over one handler, which turns on command."""

    def __init__(self, timeout_ms: int = TIMEOUT_MS) -> None:
        self.clock = FakeClock()
        self.child: Any = Handler()
        self.reported: list[Any] = []
        self.slots = ProcessSlots(memoryview(bytearray(ProcessSlots.bytes_needed(1, 1))), 0, 1, 1)
        self.watchdog = Watchdog(self.slots, timeout_ms, self.reported.append)
        self.run_once()
        self.look()

    def run_once(self) -> None:
        self.slots.beat(Role.HANDLER, 0, self.clock.monotonic_ns())

    def look(self, times: int = 1, after_ms: int = LOOK_MS) -> None:
        for _ in range(times):
            self.clock.advance_ms(after_ms)
            self.watchdog.look([self.child], self.clock.monotonic_ns())


@pytest.fixture(autouse=True)
def system(monkeypatch: pytest.MonkeyPatch) -> SimpleNamespace:
    """Replace the system: by default the child does not wait for the disk."""
    told = SimpleNamespace(is_beyond_signals=False, run_ns=None)
    monkeypatch.setattr(watchdog, "run_ns_if_runnable", lambda _: told.run_ns)
    monkeypatch.setattr(watchdog, "is_beyond_signals", lambda _: told.is_beyond_signals)
    monkeypatch.setattr(watchdog, "kernel_state", lambda _: "it is asleep")
    return told


def test_who_turns_is_left_alone() -> None:
    bench = Bench()
    for _ in range(100):
        bench.run_once()
        bench.look()
    assert (bench.reported, bench.child.killed) == ([], 0)


def test_who_does_not_turn_is_named_once_and_killed_once(caplog: pytest.LogCaptureFixture) -> None:
    bench = Bench()
    bench.look(3)
    assert bench.reported == [bench.child]
    assert caplog.messages == ["handler 0 (pid 4711) has been hanging for 2 s: it is asleep"]
    bench.look(TIMEOUT_MS // LOOK_MS - 4)
    assert bench.child.killed == 0
    bench.look(30)
    assert (bench.reported, bench.child.killed) == ([bench.child], 1)
    assert "killing it (process.hang.timeout.ms)" in caplog.messages[1]


def test_who_turns_again_is_forgiven(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    bench = Bench()
    for _ in range(10):
        bench.look(TIMEOUT_MS // LOOK_MS - 2)
        bench.run_once()
        bench.look()
    assert bench.child.killed == 0
    assert len(bench.reported) == 10
    assert "handler 0 continues after 8 s" in caplog.messages


def test_time_in_which_the_supervisor_stood_still_is_nobodys() -> None:
    """As when the machine was suspended, or everything was stopped at the terminal."""
    bench = Bench()
    bench.look(after_ms=3_600_000)
    assert (bench.reported, bench.child.killed) == ([bench.child], 0)
    bench.run_once()
    bench.look(2)
    assert bench.child.killed == 0


def test_who_waits_for_a_disk_is_named_and_not_killed_for_it(system: SimpleNamespace) -> None:
    bench = Bench()
    system.is_beyond_signals = True
    bench.look(1000)
    assert (bench.reported, bench.child.killed) == ([bench.child], 0)
    system.is_beyond_signals = False
    bench.look(TIMEOUT_MS // LOOK_MS)
    assert bench.child.killed == 1


def test_a_child_counts_from_readiness() -> None:
    bench = Bench()
    bench.look(5)
    bench.child.generation, bench.child.ready = 2, False
    bench.look(1000)
    assert bench.child.killed == 0
    bench.child.ready = True
    bench.run_once()
    bench.look(TIMEOUT_MS // LOOK_MS - 1)
    assert bench.child.killed == 0
    bench.look(3)
    assert bench.child.killed == 1


def test_nobody_is_killed_without_a_limit() -> None:
    bench = Bench(NEVER)
    bench.look(100_000)
    assert (len(bench.reported), bench.child.killed) == (1, 0)


def test_who_waits_for_a_processor_is_not_killed(system: SimpleNamespace) -> None:
    """It may be the recorder, which has the lowest priority; its share of a second counts."""
    bench = Bench()
    for _ in range(3 * TIMEOUT_MS // LOOK_MS):
        system.run_ns = (system.run_ns or 0) + 100_000_000
        bench.look()
    assert (bench.reported, bench.child.killed) == ([bench.child], 0)


def test_who_is_never_given_a_processor_is_killed_after_four_times_as_long(system: SimpleNamespace) -> None:
    system.run_ns = 7
    bench = Bench()
    bench.look(3 * TIMEOUT_MS // LOOK_MS)
    assert bench.child.killed == 0
    bench.look(TIMEOUT_MS // LOOK_MS)
    assert bench.child.killed == 1


def test_an_endless_loop_is_killed(system: SimpleNamespace) -> None:
    """One that has half of a processor after twice the time."""
    bench = Bench()
    for _ in range(2 * TIMEOUT_MS // LOOK_MS):
        system.run_ns = (system.run_ns or 0) + 500_000_000
        bench.look()
    assert bench.child.killed == 1


def test_what_a_process_has_run_is_what_the_system_counts() -> None:
    busy = subprocess.Popen([sys.executable, "-c", "while True: pass"])
    idle = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"])
    try:
        wait_until(lambda: (stack_dumps.run_ns_if_runnable(busy.pid) or 0) > 100_000_000, "it has run for a while")
        wait_until(lambda: stack_dumps.run_ns_if_runnable(idle.pid) is None, "it sleeps")
    finally:
        for each in (busy, idle):
            each.kill()
            each.wait()
    assert stack_dumps.run_ns_if_runnable(busy.pid) is None
