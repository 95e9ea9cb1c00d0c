"""A processor process and its targets: starts, replacements and changes of their number."""

from types import SimpleNamespace
from typing import cast

import pytest

from rotunda.broker.config.broker_config import load
from rotunda.broker.ipc.listener_table import ListenerTable
from rotunda.broker.ipc.process_context import ProcessContext
from rotunda.broker.network.processor import processor_process
from rotunda.broker.network.processor.processor import Processor
from rotunda.broker.network.processor.processor_process import OTHERS_NS
from rotunda.broker.network.processor.targets import Targets
from rotunda.broker.runtime.child_process import MOST_FAULTS, Role
from rotunda.broker.runtime.signals import StopFlag
from rotunda.shm.control import ControlSegment
from rotunda.shm.tables.quota_tables import QuotaTables
from rotunda.shm.tables.snapshot_buffer import SnapshotSegment
from tests.support.fakes import FakeClock

HANDLERS, MOST = 2, 4


class Followed:
    """A fake processor that records its calls about targets."""

    def __init__(self) -> None:
        self.calls: list[tuple[object, ...]] = []
        self.sender = SimpleNamespace(hold=lambda: self.calls.append(("hold",)))

    def target_ready(self, target: int, generation: int) -> None:
        self.calls.append((target, generation))

    def move(self, handlers: int, generations: dict[int, int]) -> None:
        self.calls.append(("move", handlers, dict(generations)))


class Bench:
    """One processor's view of two handlers, of at most four, and the controller."""

    def __init__(self) -> None:
        control = ControlSegment(memoryview(bytearray(ControlSegment.bytes_needed(1, MOST, 8))), 1, MOST, 8)
        control.slots.initialise()
        control.broker_words.set_handlers(HANDLERS)
        self.slots, self.broker_words = control.slots, control.broker_words
        self.processor = Followed()
        context = SimpleNamespace(slots=self.slots, broker_words=self.broker_words, handlers=HANDLERS, controller=MOST)
        self.targets = Targets(cast("ProcessContext", context), 0, cast("Processor", self.processor))

    def calls(self) -> list[tuple[object, ...]]:
        self.targets.follow()
        calls, self.processor.calls = self.processor.calls, []
        return calls


def test_b33_a_target_is_noticed_once_it_is_ready() -> None:
    bench = Bench()
    bench.slots.mark_ready(Role.HANDLER, 1, 1)
    assert bench.calls() == [(1, 1)]
    bench.slots.set_generation(Role.HANDLER, 1, 2)
    assert bench.calls() == []
    bench.slots.mark_ready(Role.HANDLER, 1, 2)
    assert bench.calls() == [(1, 2)]
    assert bench.calls() == []


def test_the_controller_follows_the_most_handlers() -> None:
    bench = Bench()
    for place in ((Role.HANDLER, 0), (Role.HANDLER, HANDLERS), (Role.CONTROLLER, 0)):
        bench.slots.mark_ready(*place, 2)
    assert bench.calls() == [(0, 2), (MOST, 2)]


def test_e04_while_requests_are_held_back_no_target_matters_and_then_all_do() -> None:
    bench = Bench()
    bench.broker_words.set_hold(1)
    assert bench.calls() == [("hold",)]
    assert bench.slots.confirmed(Role.PROCESSOR, 0) == 1
    for place in ((Role.HANDLER, 0), (Role.HANDLER, 1), (Role.HANDLER, 2), (Role.CONTROLLER, 0)):
        bench.slots.mark_ready(*place, 3)
    assert bench.calls() == []
    bench.broker_words.set_handlers(3)
    bench.broker_words.set_hold(2)
    assert bench.calls() == [("move", 3, {0: 3, 1: 3, 2: 3, MOST: 3})]
    assert bench.calls() == []


def test_e04_a_hold_without_a_change_resends_to_replaced_targets_only() -> None:
    bench = Bench()
    bench.broker_words.set_hold(1)
    bench.calls()
    bench.slots.mark_ready(Role.HANDLER, 1, 2)
    bench.broker_words.set_hold(2)
    assert bench.calls() == [("move", HANDLERS, {}), (1, 2)]


class Rounds:
    """A fake processor: its turns fail as often as requested, and the last one sets the stop flag."""

    def __init__(self, failing: list[bool], stop: StopFlag) -> None:
        self._failing = failing
        self._stop = stop
        self.turns = 0
        self.drained = False
        self.asks_for_long = False
        self.closed = False
        self.finished = SimpleNamespace()
        self.tls = SimpleNamespace(follow=lambda _settings: None, ends_s={})
        self.authentication = SimpleNamespace(follow=lambda *_: None)

    def watch(self, fd: int) -> None:
        assert fd == self._stop.fileno()

    def step(self) -> None:
        self.turns += 1
        if self.turns == len(self._failing):
            self._stop.set()
        if self._failing[self.turns - 1]:
            raise ZeroDivisionError

    def drain(self, *, produce_only: bool) -> bool:
        self.drained = True
        return produce_only or not self.asks_for_long

    def close_all(self) -> None:
        self.closed = True


def run(monkeypatch: pytest.MonkeyPatch, failing: list[bool], draining: bool = True) -> Rounds:
    stop = StopFlag()
    rounds = Rounds(failing, stop)
    control = ControlSegment(memoryview(bytearray(ControlSegment.bytes_needed(1, HANDLERS, 8))), 1, HANDLERS, 8)
    control.slots.initialise()
    control.broker_words.set_draining(draining)
    monkeypatch.setattr(processor_process, "build", lambda *_: rounds)
    snapshots = SnapshotSegment(memoryview(bytearray(SnapshotSegment.bytes_needed(1, HANDLERS))), 1, HANDLERS)
    context = SimpleNamespace(
        slots=control.slots,
        broker_words=control.broker_words,
        handlers=HANDLERS,
        controller=HANDLERS,
        processors=1,
        mark_ready=control.slots.mark_ready,
        config=load(None, {"shutdown.timeout.ms": "1000", "quota.window.num": "1"}, {}),
        live_settings=lambda: SimpleNamespace(
            user_credentials=None,
            refresh=lambda: False,
            apply=lambda *followers: [follow() for follow in followers],
            client_quotas={},
            broker_config=load(None, {}, {}),
        ),
        quota_tables=QuotaTables(memoryview(bytearray(QuotaTables.bytes_needed(1, 2))), 1, 2),
        channel_shape=SimpleNamespace(targets=1),
        listener_table=ListenerTable(snapshots.of_listeners()),
    )
    try:
        processor_process.run(cast("ProcessContext", context), 0, 1, stop)
    finally:
        stop.close()
    assert control.slots.ready_generation(Role.PROCESSOR, 0) == 1
    return rounds


@pytest.mark.parametrize("draining", [True, False])
def test_b31_the_loop_ends_at_the_flag_and_drains_if_the_broker_does(
    monkeypatch: pytest.MonkeyPatch, draining: bool
) -> None:
    rounds = run(monkeypatch, [False] * 3, draining)
    assert (rounds.turns, rounds.drained, rounds.closed) == (3, draining, True)


def test_b01_a_failed_run_does_not_end_the_loop(monkeypatch: pytest.MonkeyPatch) -> None:
    failing = ([True] * (MOST_FAULTS - 1) + [False]) * 2
    assert run(monkeypatch, failing).turns == len(failing)


def test_a_process_ends_after_many_failed_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    """A corrupt ring, for example, remains corrupt: the loop would spin and fill the log."""
    with pytest.raises(ZeroDivisionError):
        run(monkeypatch, [True] * (MOST_FAULTS + 1))


def test_a_stop_waits_a_moment_for_slow_responses() -> None:
    stop, clock = StopFlag(), FakeClock()
    rounds = Rounds([], stop)
    rounds.asks_for_long = True
    waited: list[bool] = []
    drain = rounds.drain

    def run_once(*, produce_only: bool) -> bool:
        waited.append(produce_only)
        clock.advance_ms(100)
        return drain(produce_only=produce_only)

    rounds.drain = run_once  # type: ignore[method-assign]
    processor_process._drain(cast("Processor", rounds), clock.monotonic_ns, 15_000_000_000)
    stop.close()
    assert waited == [False] * (OTHERS_NS // 100_000_000) + [True]
