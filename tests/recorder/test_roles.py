"""The dataset roles: when rows are written, what is in them, and what is said of those that a killed recorder began."""

import os
from pathlib import Path

import pytest

from broker.recorder.columns import DATASETS
from broker.recorder.role_rows import LOOK_NS, RoleRows, RoleSources
from shm.layout import RING_HEADER
from shm.metrics import MetricsReader, MetricsSegment, MetricsWriter
from shm.process_slots import HANDLER, PROCESSOR, ROLES, RUNNING, SUPERVISOR, ProcessSlots
from shm.ring import RingProducer, initialise, ring_bytes
from shm.ring_fill import RingShare
from tests.support.recorder_bench import RecorderBench

INTERVAL_MS = 10_000
MS = 1_000_000
RING_BYTES = 4096
HEAD = RING_HEADER.word("head")


class RolesBench(RecorderBench):
    """One processor, which is this process, and one handler; the handler reads one ring."""

    def __init__(self, root: Path, **settings: object) -> None:
        super().__init__(root, **settings)
        self.metrics = MetricsSegment(memoryview(bytearray(MetricsSegment.bytes_needed(1, 1))), 1, 1)
        self.metrics.initialise()
        self.slots = ProcessSlots(memoryview(bytearray(ProcessSlots.bytes_needed(1, 1))), 0, 1, 1)
        self.slots.initialise()
        self.processor, self.handler = (MetricsWriter(self.metrics.page(role, 0)) for role in (PROCESSOR, HANDLER))
        for role in (SUPERVISOR, PROCESSOR):
            self.slots.set_pid(role, 0, os.getpid())
        ring = memoryview(bytearray(ring_bytes(RING_BYTES)))
        initialise(ring, 0, RING_BYTES)
        self.ring = RingProducer(ring, 0)
        self._fills = {("handler", 0): [RingShare(ring, 0)]}
        self.watch()

    def watch(self) -> RoleRows:
        """Have the recorder record roles, as it does from its start on."""
        sources = RoleSources(self.slots, self.metrics.readers_by_process(), self._fills)
        self.roles = RoleRows(sources, self.rings)
        self.recorder.record_roles(self.roles)
        return self.roles

    def count(self, page: MetricsWriter, name: str, n: int, label: str = "") -> None:
        """Have a process count."""
        page.add(page.index(name, label), n)

    def rows(self, role: str) -> list[dict]:
        """Finish every file; return the rows of one role in the order of their times."""
        self.recorder.finish()
        return sorted((row for row in self.read("roles") if row["role"] == role), key=lambda row: row["time"])


@pytest.fixture
def bench(tmp_path: Path) -> RolesBench:
    return RolesBench(tmp_path / "request-log")


def test_a_row_for_every_process_with_every_column(bench: RolesBench) -> None:
    bench.count(bench.processor, "requests_received", 1)
    bench.turn()
    bench.turn(INTERVAL_MS)
    bench.clock.advance_ms(1)
    bench.recorder.finish()
    rows = bench.read("roles")
    assert sorted(row["role"] for row in rows) == sorted([*ROLES, *ROLES])
    assert set(rows[0]) == {column.name for column in DATASETS["roles"].columns}
    assert len({row["time"] for row in rows}) == 2


def test_counts_are_of_the_interval_and_add_up(bench: RolesBench) -> None:
    counted = {"requests": 0, "mutesArena": 0, "mutesRingFull": 0, "arenaDepletedUs": 0, "connectionsClosed": 0}
    bench.count(bench.processor, "requests_received", 5)
    bench.turn()
    for number in range(1, 4):
        bench.count(bench.processor, "requests_received", number)
        bench.count(bench.processor, "mutes", 2 * number, "arena")
        bench.count(bench.processor, "mutes", 1, "ring_full")
        bench.count(bench.processor, "arena_depleted_ns", 1_000_400)
        bench.count(bench.processor, "connections_closed", 1, "client")
        bench.count(bench.processor, "connections_closed", 2, "idle")
        bench.turn(INTERVAL_MS)
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
    bench.count(bench.processor, "requests_received", 1)
    bench.turn()
    bench.count(bench.processor, "io_wait_ns", 300)
    bench.count(bench.processor, "io_ns", 100)
    bench.count(bench.handler, "idle_ns", 10)
    bench.count(bench.handler, "busy_ns", 90)
    for name, value in (("arena_used_bytes", 3), ("arena_free_bytes", 5), ("connections", 7)):
        bench.processor.set(bench.processor.index(name), value)
    bench.turn(INTERVAL_MS)
    processor, handler = bench.rows("processor")[0], bench.rows("handler")[0]
    assert (processor["idleShare"], handler["idleShare"]) == (0.75, 0.1)
    assert [processor[name] for name in ("arenaUsedBytes", "arenaBytes", "connections")] == [3, 8, 7]
    assert bench.rows("cleaner")[0]["idleShare"] is None


def test_the_peak_of_a_ring_is_the_highest_that_was_seen(bench: RolesBench) -> None:
    bench.count(bench.processor, "requests_received", 1)
    bench.turn()
    assert bench.roles.due_ns(bench.clock.monotonic_ns()) == bench.clock.monotonic_ns() + LOOK_NS
    assert bench.ring.claim(RING_BYTES // 2 - 8) >= 0
    bench.ring.publish()
    bench.turn(LOOK_NS // MS)
    # Its reader lets go of it.
    bench._fills["handler", 0][0]._header[HEAD] = RING_BYTES // 2
    bench.turn(INTERVAL_MS)
    row = bench.rows("handler")[0]
    assert (row["ringFill"], row["ringFillPeak"]) == (0.0, 0.5)
    assert bench.rows("processor")[0]["ringFill"] is None


def test_rows_end_one_interval_after_the_last_request(bench: RolesBench) -> None:
    """Idle and gone are told apart: the last rows of an idle broker say that nothing came."""
    for _ in range(3):
        bench.turn(INTERVAL_MS)
    assert bench.recorder.is_busy is False
    bench.count(bench.processor, "requests_received", 1)
    bench.turn()
    assert bench.recorder.is_busy is True
    for _ in range(5):
        bench.turn(INTERVAL_MS)
    bench.count(bench.processor, "requests_received", 1)
    bench.turn(INTERVAL_MS)
    bench.turn(INTERVAL_MS // 2)
    rows = bench.rows("processor")
    assert [(row["traffic"], row["intervalUs"]) for row in rows] == [
        (True, 10_000_000), (False, 10_000_000), (True, 5_000_000),
    ]  # fmt: skip


def test_what_is_used_is_what_the_system_says(bench: RolesBench) -> None:
    bench.slots.set_state(PROCESSOR, 0, RUNNING)
    bench.slots.set_restarts(PROCESSOR, 0, 2)
    bench.slots.set_generation(PROCESSOR, 0, 3)
    bench.count(bench.processor, "requests_received", 1)
    before = sum(os.times()[:2])
    bench.turn()
    while sum(os.times()[:2]) - before < 0.1:
        pass
    bench.turn(INTERVAL_MS)
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
    bench.count(bench.processor, "requests_received", 1)
    bench.turn()
    bench.slots.set_pid(PROCESSOR, 0, os.getpid())
    bench.turn(INTERVAL_MS)
    assert bench.rows("processor")[0]["cpuTimeUs"] >= sum(os.times()[:2]) * 1e6 / 2


def test_a_killed_recorder_leaves_a_gap_of_all_rows_that_it_had_begun(bench: RolesBench) -> None:
    def gaps() -> list[tuple[object, ...]]:
        return [tuple(gap[name] for name in ("dataset", "source", "cause", "rows")) for gap in bench.read("gaps")]

    bench.count(bench.processor, "requests_received", 1)
    bench.turn()
    bench.count(bench.processor, "requests_received", 1)
    bench.turn(INTERVAL_MS)
    bench.start_recorder(replaces=True)
    bench.watch()
    bench.recorder.finish()
    # One set that was written nowhere, and one that was under way.
    assert gaps() == [("roles", "recorder", "recorder_killed", 2 * bench.roles.size)]
    bench.start_recorder(replaces=True)
    bench.watch()
    bench.count(bench.processor, "requests_received", 1)
    bench.turn()
    bench.recorder.finish()
    bench.start_recorder(replaces=True)
    bench.recorder.finish()
    assert len(gaps()) == 1


def test_rows_that_cannot_be_written_are_a_gap(bench: RolesBench) -> None:
    (bench.root / "roles").write_text("no directory")
    bench.count(bench.processor, "requests_received", 1)
    bench.turn()
    bench.recorder.finish()
    bench.recorder.finish()
    (gap,) = bench.read("gaps")
    assert (gap["dataset"], gap["source"], gap["cause"], gap["rows"]) == (
        "roles", "recorder", "write_failed", bench.roles.size,
    )  # fmt: skip


@pytest.mark.parametrize(
    "settings", [{"request_log_roles_interval_ms": 0}, {"request_log_enable": "false"}], ids=["off", "no log"]
)
def test_there_are_none_where_none_are_wanted(tmp_path: Path, settings: dict[str, object]) -> None:
    bench = RolesBench(tmp_path / "request-log", **settings)
    bench.count(bench.processor, "requests_received", 1)
    assert bench.roles.has_traffic is False
    bench.turn()
    bench.turn(INTERVAL_MS)
    assert bench.rows("processor") == []


def test_a_reader_of_values_gives_what_a_whole_reading_does(bench: RolesBench) -> None:
    bench.count(bench.processor, "mutes", 3, "order")
    reader = MetricsReader(bench.metrics.page(PROCESSOR, 0))
    assert reader.values() == reader.read().values
