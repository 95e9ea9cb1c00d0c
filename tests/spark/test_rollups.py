"""The hourly tables: equal to an independent computation despite faults of the files, the run or its neighbours."""

import json
import os
import re
import shutil
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import duckdb
import pytest
from pyspark.sql import DataFrame, SparkSession

from rotunda.spark.failures import JobFailed
from rotunda.spark.file_system import FileSystem
from rotunda.spark.hourly.lock import exclusive
from rotunda.spark.hourly.rollups import KEYS, TABLES, Rollups
from rotunda.spark.log.request_log import RequestLog
from rotunda.spark.time_range import TimeRange
from tests.spark.questions import HISTOGRAMS, ROLLED_UP
from tests.support.broker_process import REPOSITORY
from tests.support.feeds import random_seed
from tests.support.generated_log import START, random_requests, write

NOW = datetime(2026, 3, 2, tzinfo=UTC)
ALL = TimeRange.of("2026-03-01T10:00:00", "2026-03-01T12:00:00", NOW)
PART = TimeRange.of("2026-03-01T10:20:00", "2026-03-01T12:00:00", NOW)
EVER = range(1_000_000)
ASKED = {"keys": ", ".join(KEYS), "log": "log"}
#: As `ROLLED_UP` has them: times as microseconds, and no number in the place of the keys.
COLUMNS = [f"unix_micros({name})" if name.endswith("Time") else name for name in TABLES["requests"].names[:-1]]


class Log:
    """A log of two hours with late files and gaps, and its rollups."""

    def __init__(self, spark: SparkSession, directory: Path) -> None:
        self.spark = spark
        self.path, self.rollups_path = directory / "request-log", directory / "rollups"
        self.kept = directory / "kept"
        self.seed = random_seed()
        print(f"seed {self.seed}")
        self.add(self.seed)
        write(self.path, "gaps", [_gap(5), _gap(70), _gap(71)])

    def add(self, seed: int, rows: int = 400, hours: int = 2) -> list[Path]:
        """Write a file of each hour, and a copy that retention does not reach."""
        requests = random_requests(seed, rows, hours)
        write(self.kept, "requests", requests)
        return write(self.path, "requests", requests)

    def rollups(self) -> Rollups:
        return Rollups(self.spark, str(self.rollups_path), RequestLog(self.spark, str(self.path)))

    def check(self, time_range: TimeRange = ALL) -> None:
        """Compare readers' results with an independent computation over all rows ever written."""
        requests, latencies = self.rollups().read(time_range)
        with duckdb.connect() as connection:
            connection.execute("SET TimeZone = 'UTC'")
            files = (
                f"read_parquet('{self.kept}/requests/**/*.parquet', union_by_name = true, hive_partitioning = false)"
            )
            start, end = (time.strftime("%Y-%m-%d %H:%M:%S+00") for time in (time_range.start, time_range.end))
            where = f"time >= TIMESTAMPTZ '{start}' AND time < TIMESTAMPTZ '{end}'"
            connection.execute(f"CREATE TABLE log AS SELECT * FROM {files} WHERE {where}")  # noqa: S608
            assert _sorted(requests.selectExpr(*COLUMNS)) == _sorted(connection.sql(ROLLED_UP.format(**ASKED)))
            keys = requests.select("date", "hour", "key", *KEYS)
            named = latencies.join(keys, ["date", "hour", "key"])
            found = _sorted(named.select("date", "hour", *KEYS, "phase", "bucket", "requests"))
            assert found == _sorted(connection.sql(HISTOGRAMS.format(**ASKED)))
            (counted,) = connection.sql("SELECT count(*), sum(sampleWeight)::BIGINT FROM log").fetchall()
        coverage = self.rollups().coverage(time_range)
        assert (coverage.rows, coverage.requests) == counted

    def runs(self) -> set[str]:
        """Return the directories of rows that are stored."""
        return {str(path.relative_to(self.rollups_path)) for path in self.rollups_path.glob("*/date=*/hour=*/run=*")}


def _gap(minute: int) -> dict[str, Any]:
    time = START.replace(hour=START.hour + minute // 60, minute=minute % 60)
    return {"time": time, "dataset": "requests", "source": "processor", "index": 0, "cause": "ring_full", "rows": 10}


def _sorted(rows: DataFrame | duckdb.DuckDBPyRelation) -> list[tuple[Any, ...]]:
    found = rows.collect() if isinstance(rows, DataFrame) else rows.fetchall()
    return sorted((tuple(row) for row in found), key=repr)


@pytest.fixture
def log(spark: SparkSession, tmp_path: Path) -> Log:
    return Log(spark, tmp_path)


def test_stored_hours_are_those_of_an_independent_computation(log: Log) -> None:
    assert set(log.rollups().store(EVER)) == {492322, 492323}
    log.check()
    assert log.rollups().outdated(EVER) == {}


def test_a_second_run_changes_nothing(log: Log) -> None:
    log.rollups().store(EVER)
    before = {path: path.stat().st_mtime_ns for path in log.rollups_path.rglob("*") if path.is_file()}
    assert log.rollups().store(EVER) == {}
    after = {path: path.stat().st_mtime_ns for path in log.rollups_path.rglob("*") if path.is_file()}
    del before[log.rollups_path / ".lock"], after[log.rollups_path / ".lock"]
    assert after == before


def test_late_files_touch_their_hour_alone_and_count_once(log: Log) -> None:
    log.rollups().store(EVER)
    first = log.runs()
    late = log.add(log.seed + 1, hours=1)
    log.check()
    assert {hour: [file.name for file in files] for hour, files in log.rollups().store(EVER).items()} == {
        492322: [path.name for path in late]
    }
    log.check(PART)
    assert {each for each in log.runs() if "hour=11" in each} == {each for each in first if "hour=11" in each}
    assert len(log.runs()) == len(first)


def test_hours_whose_files_retention_took_stay_and_late_files_add_to_them(log: Log) -> None:
    log.rollups().store(EVER)
    shutil.rmtree(log.path / "requests" / "v=1")
    shutil.rmtree(log.path / "gaps")
    assert log.rollups().outdated(EVER) == {}
    log.check()
    assert log.rollups().coverage(ALL).gap_rows == 3
    assert log.rollups().coverage(ALL).lost_rows == 30
    log.add(log.seed + 2)
    log.check()
    write(log.path, "gaps", [_gap(8)])
    assert log.rollups().coverage(ALL).gap_rows == 4
    assert set(log.rollups().store(EVER)) == {492322, 492323}
    log.check()
    assert log.rollups().coverage(ALL).gap_rows == 4


def test_what_a_killed_run_leaves_is_neither_read_nor_kept(log: Log) -> None:
    rollups = log.rollups()
    rollups.store(EVER)
    stored = log.runs()
    log.add(log.seed + 3)
    # Killed before its manifests were written: rows of both hours, Spark's staged files, and the run's progress file.
    for directory in stored:
        shutil.copytree(log.rollups_path / directory, (log.rollups_path / directory).with_name("run=killed"))
    (log.rollups_path / "requests" / ".spark-staging-1").mkdir()
    (log.rollups_path / "manifest" / "_under_way.json").write_text("[492322, 492323]")
    log.check()
    rollups.store(EVER)
    log.check()
    assert len(log.runs()) == len(stored)
    assert not [each for each in log.runs() if "killed" in each]
    assert not list(log.rollups_path.rglob("_under_way*")) + list(log.rollups_path.rglob(".spark-staging*"))


def test_a_second_run_at_the_same_time_fails_with_a_line_that_names_the_first(log: Log) -> None:
    with exclusive(FileSystem(log.spark, str(log.rollups_path)), "rollup"), pytest.raises(JobFailed) as failure:
        log.rollups().store(EVER)
    assert f"another rollup writes to {log.rollups_path}: process {os.getpid()} on" in str(failure.value)
    assert "\n" not in str(failure.value)
    log.rollups().store(EVER)
    log.check()


def test_stored_hours_of_an_unknown_version_are_one_clear_line(log: Log) -> None:
    log.rollups().store(EVER)
    (manifest, *_) = (log.rollups_path / "manifest").rglob("*.json")
    manifest.write_text(json.dumps(json.loads(manifest.read_text()) | {"version": 2}))
    with pytest.raises(JobFailed, match="has stored hours of version 2, which this job does not know; it knows 1"):
        log.rollups().read(ALL)


def test_the_query_in_the_documentation_counts_what_the_jobs_count(log: Log) -> None:
    log.rollups().store(EVER)
    # Rows that no manifest counts, as a killed run leaves them.
    for directory in log.runs():
        shutil.copytree(log.rollups_path / directory, (log.rollups_path / directory).with_name("run=killed"))
    page = (REPOSITORY / "docs" / "internals" / "reports.md").read_text()
    (query,) = re.findall(r"```sql\n(.*?)```", page, re.DOTALL)
    assert query.count("'rollups/") == 2
    with duckdb.connect() as connection:
        found = connection.sql(query.replace("'rollups/", f"'{log.rollups_path}/")).fetchall()
        written = f"read_parquet('{log.kept}/requests/**/*.parquet', union_by_name = true)"
        expected = connection.sql(f"SELECT clientId, sum(sampleWeight) FROM {written} GROUP BY ALL").fetchall()  # noqa: S608
    assert sorted(found, key=repr) == sorted(expected, key=repr)


def test_an_hour_with_gaps_alone_is_stored(log: Log) -> None:
    log.rollups().store(EVER)
    write(log.path, "gaps", [_gap(125)])
    assert list(log.rollups().store(EVER)) == [492324]
    assert log.rollups().outdated(EVER) == {}
    log.check(TimeRange.of("2026-03-01T10:00:00", "2026-03-01T13:00:00", NOW))
