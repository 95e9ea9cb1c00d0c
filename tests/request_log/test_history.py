"""The history: the aggregates of a minute, when they are in a file, and what a killed recorder leaves."""

import logging
from datetime import timedelta
from pathlib import Path

import pytest

from rotunda.broker.request_log.columns import DATASETS
from rotunda.broker.request_log.hour_files import DAMAGED, newest
from rotunda.broker.request_log.part_files import HOUR_US, apply_retention, hour_path
from rotunda.broker.status.history import HistoryReader
from rotunda.shm.rings.recorder_rings import Retention
from tests.support.history_bench import MINUTE_MS, HistoryBench
from tests.support.recorder_bench import WALL_MS

PRODUCE, FETCH = 0, 1
HOUR = WALL_MS * 1000 // HOUR_US


@pytest.fixture
def bench(tmp_path: Path) -> HistoryBench:
    return HistoryBench(tmp_path / "request-log")


def test_a_minute_has_a_row_for_each_api(bench: HistoryBench) -> None:
    bench.finish_requests(PRODUCE, 99, us=1_000)
    bench.finish_requests(PRODUCE, 1, us=50_000, error=3)
    bench.finish_requests(FETCH, 2, us=10)
    bench.turn()
    bench.turn(MINUTE_MS)
    fetch, produce = bench.history("api")
    assert set(produce) == {column.name for column in DATASETS["history"].columns}
    assert (produce["name"], fetch["name"]) == ("PRODUCE", "FETCH")
    assert produce["time"].timestamp() * 1000 == WALL_MS
    assert (produce["requests"], produce["errors"], produce["bytesIn"]) == (100, 1, 10_000)
    assert produce["totalP50Us"] == produce["localP99Us"] == pytest.approx(1_000, rel=0.02)
    bench.finish_requests(PRODUCE, 50, us=50_000)
    bench.turn(MINUTE_MS)
    assert bench.history("api")[-1]["totalP50Us"] == pytest.approx(50_000, rel=0.02)
    assert bench.history("api")[-1]["requests"] == 50


def test_minutes_without_requests_have_no_rows_and_let_the_recorder_rest(bench: HistoryBench) -> None:
    bench.finish_requests(PRODUCE, 1, us=10)
    bench.turn()
    for _ in range(5):
        bench.turn(MINUTE_MS)
    assert len(bench.history("api")) == 1
    assert not bench.recorder.is_busy
    bench.finish_requests(PRODUCE, 1, us=10)
    bench.turn()
    assert bench.recorder.is_busy
    bench.turn(MINUTE_MS)
    first, second = bench.history("api")
    assert second["time"] - first["time"] == timedelta(minutes=5)


def test_a_killed_recorder_loses_the_present_minute_only(bench: HistoryBench) -> None:
    for _ in range(3):
        bench.finish_requests(PRODUCE, 1, us=10)
        bench.turn(MINUTE_MS)
    bench.finish_requests(PRODUCE, 5, us=10)
    bench.turn()
    bench.start_recorder(replaces=True)
    bench.record()
    bench.finish_requests(PRODUCE, 7, us=10)
    bench.turn(MINUTE_MS)
    assert [row["requests"] for row in bench.history("api")] == [1, 1, 1, 7]
    assert len(list(hour_path(bench.root, "history", HOUR).iterdir())) == 1


def test_a_stop_writes_the_present_minute(bench: HistoryBench) -> None:
    bench.finish_requests(PRODUCE, 5, us=10)
    bench.turn(1_000)
    bench.recorder.finish()
    assert [row["requests"] for row in bench.history("api")] == [5]


def test_a_damaged_file_is_set_aside_with_a_line(bench: HistoryBench, caplog: pytest.LogCaptureFixture) -> None:
    bench.finish_requests(PRODUCE, 1, us=10)
    bench.turn(MINUTE_MS)
    directory = hour_path(bench.root, "history", HOUR)
    path = newest(directory)
    assert path is not None
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 0xFF
    path.write_bytes(content)
    reader = HistoryReader(bench.root)
    with caplog.at_level(logging.WARNING):
        assert reader.read(WALL_MS, WALL_MS + MINUTE_MS)["unreadable_hours"] == 1
    assert str(path) in caplog.text
    bench.start_recorder(replaces=True)
    bench.record()
    bench.finish_requests(PRODUCE, 2, us=10)
    with caplog.at_level(logging.ERROR):
        bench.turn(MINUTE_MS)
    assert f"set aside as .{path.name}{DAMAGED}" in caplog.text
    assert [row["requests"] for row in bench.history("api")] == [2]


def test_a_file_that_cannot_be_written_is_written_with_the_next_minute(bench: HistoryBench) -> None:
    in_the_way = bench.root / "history"
    in_the_way.write_text("")
    bench.finish_requests(PRODUCE, 1, us=10)
    bench.turn(MINUTE_MS)
    assert bench.recorder.is_busy
    in_the_way.unlink()
    bench.finish_requests(PRODUCE, 2, us=10)
    bench.turn(MINUTE_MS)
    assert [row["requests"] for row in bench.history("api")] == [1, 2]


def test_the_history_has_a_retention_of_its_own(bench: HistoryBench) -> None:
    bench.finish_requests(PRODUCE, 1, us=10)
    bench.turn(MINUTE_MS)
    assert apply_retention(bench.root, 1e12, Retention(0, 0, -1)) == 0
    assert apply_retention(bench.root, 1e12, Retention(-1, -1, 1000)) == 1
    assert list(bench.root.iterdir()) == []


def test_a_range_becomes_points_of_whole_steps(bench: HistoryBench) -> None:
    for count in (1, 2, 3):
        bench.finish_requests(PRODUCE, count, us=10)
        bench.turn(MINUTE_MS)
    found = HistoryReader(bench.root).read(WALL_MS, WALL_MS + 3_600_000)
    assert (found["step_ms"], found["points"]) == (MINUTE_MS, 60)
    assert found["series"]["api"]["PRODUCE"]["requests"][:4] == [1, 2, 3, None]
    day = HistoryReader(bench.root).read(WALL_MS - 86_400_000, WALL_MS + MINUTE_MS * 5)
    assert day["step_ms"] == 5 * MINUTE_MS
    assert day["series"]["api"]["PRODUCE"]["requests"][-1] == 6
    assert HistoryReader(bench.root).read(0, MINUTE_MS)["series"]["api"] == {}
