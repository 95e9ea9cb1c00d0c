"""Compaction: the same rows in fewer files, seen once by every reader at every moment, whichever process is killed."""

import json
import os
import shutil
import threading
from argparse import Namespace
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path

import duckdb
import pytest
from pyspark.sql import SparkSession

from rotunda.broker.request_log import file_reader, part_files
from rotunda.broker.request_log.file_reader import Query
from rotunda.shm.rings.recorder_rings import Retention
from rotunda.spark.hourly import compaction
from rotunda.spark.hourly.compaction import ASIDE, recover
from rotunda.spark.hourly.rollups import Rollups
from rotunda.spark.job import Context
from rotunda.spark.jobs.compact import answer, compact
from rotunda.spark.log.request_log import RequestLog
from rotunda.spark.time_range import TimeRange
from tests.support.feeds import random_seed
from tests.support.generated_log import LATER_COLUMNS, random_requests, write

HOUR = 492322
NOW = datetime(2026, 3, 2, tzinfo=UTC)
ALL = TimeRange.of("2026-03-01T10:00:00", "2026-03-01T12:00:00", NOW)
FILES = 6
PAUSE_S = 0.05


class Killed(BaseException):
    """Raised in place of the end of the process."""


class Log:
    """An hour of many small files, some of an older version."""

    def __init__(self, spark: SparkSession, root: Path) -> None:
        self.spark, self.root = spark, root
        self.seed = random_seed()
        print(f"seed {self.seed}")
        self.rows = 0
        for number in range(FILES):
            self.add(number)

    def add(self, number: int) -> Path:
        """Add another file of the hour; every second lacks the later columns."""
        without = LATER_COLUMNS if number % 2 else ()
        (path,) = write(self.root, "requests", random_requests(self.seed + number, 50, 1), without)
        os.utime(path, (1_700_000_000 + number, 1_700_000_000 + number))
        self.rows += 50
        return path

    def compact(self) -> int:
        """Compact the hour as the job does."""
        recover(self.root)
        files = RequestLog(self.spark, str(self.root)).files("requests", range(HOUR, HOUR + 1))
        made = compact(self.spark, self.root, "requests", files)
        shutil.rmtree(self.root / ASIDE, ignore_errors=True)
        return made

    def content(self) -> Counter[str]:
        """Return the rows as any reader has them."""
        files = f"read_parquet('{self.root}/requests/**/*.parquet', union_by_name = true, hive_partitioning = false)"
        with duckdb.connect() as connection:
            found = connection.sql(f"SELECT epoch_us(time), correlationId, totalTimeUs, clientId, codec FROM {files}")  # noqa: S608
            return Counter(map(repr, found.fetchall()))

    @property
    def names(self) -> list[str]:
        return sorted(part.path.name for part in part_files.finished(self.root))


@pytest.fixture
def log(spark: SparkSession, tmp_path: Path) -> Log:
    return Log(spark, tmp_path / "request-log")


@contextmanager
def counted_all_the_time(*readers: Callable[[], int]) -> Iterator[list[set[int]]]:
    """Yield the counts that readers find, over and over, while the block runs; each reads once more at the end."""
    found: list[set[int]] = [set() for _ in readers]
    done = threading.Event()

    def read(place: int) -> None:
        last = False
        while not last:
            last = done.wait(PAUSE_S)
            try:
                found[place].add(readers[place]())
            except (duckdb.IOException, FileNotFoundError):
                # It had the old list: it must be made again.
                last = False

    threads = [threading.Thread(target=read, args=(place,)) for place in range(len(readers))]
    for thread in threads:
        thread.start()
    try:
        yield found
    finally:
        done.set()
        for thread in threads:
            thread.join()


def run_job(log: Log) -> None:
    """Compact as `rotunda report compact` does, which reads the stored rollups."""
    of = RequestLog(log.spark, str(log.root))
    rollups = Rollups(log.spark, str(log.root.parent / "rollups"), of)
    answer(Context(log.spark, of, rollups, ALL, Namespace(grace="10m"), NOW))


def test_every_reader_counts_every_row_once_all_the_time(log: Log) -> None:
    before = log.content()

    def duck() -> int:
        with duckdb.connect() as connection:
            ((rows,),) = connection.sql(
                f"SELECT count(*) FROM read_parquet('{log.root}/requests/**/*.parquet', union_by_name = true)"  # noqa: S608
            ).fetchall()
        return int(rows)

    def recorder() -> int:
        return len(file_reader.read(log.root, "requests", Query(0)))

    with counted_all_the_time(duck, recorder) as found:
        assert log.compact() == 1
    assert found == [{log.rows}, {log.rows}]
    assert log.content() == before
    (name,) = log.names
    assert name.startswith(part_files.COMPACTED)
    (path,) = log.root.rglob(name)
    rows = [row["time"] for row in file_reader.read(log.root, "requests", Query(0))]
    assert rows == sorted(rows)
    assert path.stat().st_mtime == 1_700_000_000 + FILES - 1
    assert not (log.root / ASIDE).exists()


def test_stored_hours_stand_for_compacted_files_and_late_ones_are_added(log: Log) -> None:
    def rollups() -> Rollups:
        return Rollups(log.spark, str(log.root.parent / "rollups"), RequestLog(log.spark, str(log.root)))

    rollups().store([HOUR])
    log.compact()
    assert rollups().outdated(range(HOUR, HOUR + 1)) == {}
    late = log.add(FILES)
    assert [file.name for file in rollups().outdated(range(HOUR, HOUR + 1))[HOUR]] == [late.name]
    log.compact()
    # The late file's rows are among others that are stored: the hour is computed again.
    assert list(rollups().store([HOUR])) == [HOUR]
    coverage = rollups().coverage(ALL)
    assert (coverage.rows, coverage.files) == (log.rows, 1)


def test_a_late_file_waits_for_its_rollup_so_that_retention_may_take_the_others(log: Log) -> None:
    """If some stored rows of a file with stored and late ones are deleted, the late ones cannot be distinguished."""

    def rollups() -> Rollups:
        return Rollups(log.spark, str(log.root.parent / "rollups"), RequestLog(log.spark, str(log.root)))

    rollups().store([HOUR])
    late = log.add(FILES)
    oldest = next(path for path in log.root.rglob("*.parquet") if path.stat().st_mtime == 1_700_000_000)
    oldest.unlink()
    run_job(log)
    (compacted, other) = log.names
    assert (compacted.startswith(part_files.COMPACTED), other) == (True, late.name)
    assert rollups().coverage(ALL).rows == log.rows
    assert list(rollups().store([HOUR])) == [HOUR]
    run_job(log)
    assert len(log.names) == 1
    assert rollups().outdated(range(HOUR, HOUR + 1)) == {}
    assert rollups().coverage(ALL).rows == log.rows
    assert sum(log.content().values()) == log.rows - 50


def test_a_run_that_ends_before_it_replaces_files_is_repeated(log: Log, monkeypatch: pytest.MonkeyPatch) -> None:
    def killed(*_: object) -> None:
        raise Killed

    monkeypatch.setattr(compaction.HourCompaction, "replace", killed)
    with pytest.raises(Killed):
        log.compact()
    monkeypatch.undo()
    log.add(FILES)
    before = log.content()
    log.compact()
    assert log.content() == before
    assert len(log.names) == 1


def test_what_comes_while_directories_change_places_is_moved_over(log: Log, monkeypatch: pytest.MonkeyPatch) -> None:
    own = compaction._exchange

    def exchange(one: Path, other: Path) -> None:
        if other.name.startswith("hour="):
            log.add(FILES)
            # And one that the recorder has open.
            (other / ".part-9.parquet.unfinished").write_text("begun")
        own(one, other)

    monkeypatch.setattr(compaction, "_exchange", exchange)
    log.compact()
    assert sum(log.content().values()) == log.rows
    assert len(log.names) == 2
    assert [path.read_text() for path in log.root.rglob("*.unfinished")] == ["begun"]


def test_retention_takes_compacted_files_with_their_note(log: Log) -> None:
    log.compact()
    assert part_files.apply_retention(log.root, 1_700_000_000, Retention(1000)) == 0
    assert part_files.apply_retention(log.root, 1_800_000_000, Retention(1000)) == 1
    assert list(log.root.iterdir()) == []


def test_what_is_kept_aside_is_no_finished_file(log: Log) -> None:
    aside = log.root / ASIDE / "requests"
    aside.mkdir(parents=True)
    (aside / "part-1.parquet").write_text(json.dumps({}))
    assert len(log.names) == FILES
