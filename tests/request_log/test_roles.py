"""The dataset `roles`: when rows are written, their contents, and intervals that a killed recorder began."""

import os
from itertools import pairwise
from pathlib import Path

import pytest

from rotunda.broker.request_log.columns import DATASETS
from rotunda.broker.request_log.part_files import apply_retention, finished
from rotunda.broker.request_log.role_rows import LOOK_NS
from rotunda.shm.layout import RING_HEADER
from rotunda.shm.metrics.process_metrics import MetricsReader
from rotunda.shm.rings.recorder_rings import Retention
from rotunda.shm.tables.process_slots import PROCESSOR, ROLES, RUNNING
from tests.support.roles_bench import INTERVAL_MS, RING_BYTES, RolesBench

MS = 1_000_000
HEAD = RING_HEADER.word("head")


@pytest.fixture
def bench(tmp_path: Path) -> RolesBench:
    return RolesBench(tmp_path / "request-log")


def test_a_row_for_every_process_with_every_column(bench: RolesBench) -> None:
    bench.count(bench.processor, "requests_received", 1)
    bench.run_once()
    bench.run_once(INTERVAL_MS)
    bench.clock.advance_ms(1)
    bench.recorder.finish()
    rows = bench.read("roles")
    assert sorted(row["role"] for row in rows) == sorted([*ROLES, *ROLES])
    assert set(rows[0]) == {column.name for column in DATASETS["roles"].columns}
    assert len({row["time"] for row in rows}) == 2


def test_counts_are_of_the_interval_and_add_up(bench: RolesBench) -> None:
    counted = {"requests": 0, "mutesArena": 0, "mutesRingFull": 0, "arenaDepletedUs": 0, "connectionsClosed": 0}
    bench.count(bench.processor, "requests_received", 5)
    bench.run_once()
    for number in range(1, 4):
        bench.count(bench.processor, "requests_received", number)
        bench.count(bench.processor, "mutes", 2 * number, "arena")
        bench.count(bench.processor, "mutes", 1, "ring_full")
        bench.count(bench.processor, "arena_depleted_ns", 1_000_400)
        bench.count(bench.processor, "connections_closed", 1, "client")
        bench.count(bench.processor, "connections_closed", 2, "idle")
        bench.run_once(INTERVAL_MS)
    rows = bench.rows("processor")
    assert [row["requests"] for row in rows] == [6, 2, 3, 0]
    for row in rows:
        counted = {name: total + row[name] for name, total in counted.items()}
    assert counted == {
        "requests": 11, "mutesArena": 12, "mutesRingFull": 3, "arenaDepletedUs": 3_001, "connectionsClosed": 9,
    }  # fmt: skip
    assert {row["mutesOutput"] for row in rows} == {0}
    assert {(row["mutesArena"], row["errors"] is None) for row in bench.rows("handler")} == {(None, False)}


def test_shares_and_gauges(bench: RolesBench) -> None:
    bench.count(bench.processor, "io_wait_ns", 1_000)
    bench.watch()
    bench.count(bench.processor, "requests_received", 1)
    bench.run_once()
    bench.count(bench.processor, "io_wait_ns", 300)
    bench.count(bench.processor, "io_ns", 100)
    bench.count(bench.handler, "idle_ns", 10)
    bench.count(bench.handler, "busy_ns", 90)
    for name, value in (("arena_used_bytes", 3), ("arena_free_bytes", 5), ("connections", 7)):
        bench.processor.set(bench.processor.index(name), value)
    bench.run_once(INTERVAL_MS)
    processor, handler = bench.rows("processor")[0], bench.rows("handler")[0]
    assert (processor["idleShare"], handler["idleShare"]) == (0.75, 0.1)
    assert [processor[name] for name in ("arenaUsedBytes", "arenaBytes", "connections")] == [3, 8, 7]
    assert bench.rows("cleaner")[0]["idleShare"] is None


def test_the_peak_of_a_ring_is_the_highest_that_was_seen(bench: RolesBench) -> None:
    bench.count(bench.processor, "requests_received", 1)
    bench.run_once()
    assert bench.roles.due_ns(bench.clock.monotonic_ns()) == bench.clock.monotonic_ns() + LOOK_NS
    assert bench.ring.claim(RING_BYTES // 2 - 8) >= 0
    bench.ring.publish()
    bench.run_once(LOOK_NS // MS)
    # Its reader closes it.
    bench._fills["handler", 0][0]._header[HEAD] = RING_BYTES // 2
    bench.run_once(INTERVAL_MS)
    row = bench.rows("handler")[0]
    assert (row["ringFill"], row["ringFillPeak"]) == (0.0, 0.5)
    assert bench.rows("processor")[0]["ringFill"] is None


def pass_seconds(bench: RolesBench, seconds: int) -> None:
    """Advance the clock; the recorder turns once a second, as it does without a wake-up."""
    for _ in range(seconds):
        bench.run_once(1_000)


def test_rows_end_one_interval_after_the_last_request(bench: RolesBench) -> None:
    """Idle and dead can be distinguished: the last rows of an idle broker show no requests."""
    pass_seconds(bench, 30)
    assert bench.recorder.is_busy is False
    bench.count(bench.processor, "requests_received", 1)
    bench.run_once()
    assert bench.recorder.is_busy is True
    pass_seconds(bench, 50)
    bench.count(bench.processor, "requests_received", 1)
    bench.run_once()
    pass_seconds(bench, 5)
    rows = bench.rows("processor")
    # CPU used by processes a second before requests were noticed belongs to the time before them.
    assert [(row["traffic"], row["intervalUs"]) for row in rows] == [
        (True, 10_000_000), (False, 10_000_000), (True, 6_000_000),
    ]  # fmt: skip
    assert [(b["time"] - a["time"]).total_seconds() for a, b in pairwise(rows)] == [10, 36]


def test_what_is_used_before_requests_are_published_is_in_their_interval(bench: RolesBench) -> None:
    """A processor publishes up to half a second late: a short burst is over when it is noticed."""
    pass_seconds(bench, 5)
    bench.count(bench.processor, "io_ns", 100)
    bench.run_once(500)
    bench.count(bench.processor, "requests_received", 1)
    bench.run_once(100)
    pass_seconds(bench, 10)
    row, *_ = bench.rows("processor")
    assert (row["requests"], row["idleShare"]) == (1, 0.0)


def test_what_is_used_is_what_the_system_says(bench: RolesBench) -> None:
    bench.slots.set_state(PROCESSOR, 0, RUNNING)
    bench.slots.set_restarts(PROCESSOR, 0, 2)
    bench.slots.set_generation(PROCESSOR, 0, 3)
    bench.count(bench.processor, "requests_received", 1)
    before = sum(os.times()[:2])
    bench.run_once()
    while sum(os.times()[:2]) - before < 0.1:
        pass
    bench.run_once(INTERVAL_MS)
    used_us = (sum(os.times()[:2]) - before) * 1e6
    row = bench.rows("processor")[0]
    assert used_us / 2 < row["cpuTimeUs"] <= used_us + 20_000
    assert (row["pid"], row["restarts"], row["generation"], row["state"]) == (os.getpid(), 2, 3, "running")
    assert row["pssBytes"] > 1_000_000
    assert (row["runQueueTimeUs"], row["cpus"]) >= (0, 1)
    nobody = bench.rows("handler")[0]
    assert [nobody[name] for name in ("pid", "cpuTimeUs", "pssBytes", "state")] == [None, None, None, "empty"]


def test_of_a_process_that_was_started_in_the_interval_all_it_has_used(bench: RolesBench) -> None:
    bench.slots.set_pid(PROCESSOR, 0, 2**22)
    bench.watch()
    bench.count(bench.processor, "requests_received", 1)
    bench.run_once()
    bench.slots.set_pid(PROCESSOR, 0, os.getpid())
    bench.run_once(INTERVAL_MS)
    assert bench.rows("processor")[0]["cpuTimeUs"] >= sum(os.times()[:2]) * 1e6 / 2


def test_a_killed_recorder_leaves_a_gap_of_all_rows_that_it_had_begun(bench: RolesBench) -> None:
    def gaps() -> list[tuple[object, ...]]:
        return [tuple(gap[name] for name in ("dataset", "source", "cause", "rows")) for gap in bench.read("gaps")]

    bench.count(bench.processor, "requests_received", 1)
    bench.run_once()
    bench.count(bench.processor, "requests_received", 1)
    bench.run_once(INTERVAL_MS)
    bench.start_recorder(replaces=True)
    bench.watch()
    bench.recorder.finish()
    # One set that was written nowhere, and one that was under way.
    assert gaps() == [("roles", "recorder", "recorder_killed", 2 * bench.roles.size)]
    bench.start_recorder(replaces=True)
    bench.watch()
    bench.count(bench.processor, "requests_received", 1)
    bench.run_once()
    bench.recorder.finish()
    bench.start_recorder(replaces=True)
    bench.recorder.finish()
    assert len(gaps()) == 1


@pytest.mark.parametrize(
    "settings", [{"request_log_roles_interval_ms": 0}, {"request_log_enable": "false"}], ids=["off", "no log"]
)
def test_there_are_none_where_none_are_wanted(tmp_path: Path, settings: dict[str, object]) -> None:
    bench = RolesBench(tmp_path / "request-log", **settings)
    bench.count(bench.processor, "requests_received", 1)
    assert bench.roles.notice(bench.clock.monotonic_ns()) is False
    bench.run_once()
    bench.run_once(INTERVAL_MS)
    assert bench.rows("processor") == []


def test_a_reader_of_values_gives_what_a_whole_reading_does(bench: RolesBench) -> None:
    bench.count(bench.processor, "mutes", 3, "order")
    reader = MetricsReader(bench.metrics.page(PROCESSOR, 0))
    assert reader.values() == reader.read().values


def test_retention_goes_for_roles_too(bench: RolesBench) -> None:
    bench.count(bench.processor, "requests_received", 1)
    bench.run_once()
    assert bench.rows("processor")
    assert apply_retention(bench.root, 1e12, Retention(1)) >= 1
    assert not list(finished(bench.root / "roles"))
