"""The request log as data frames: rows of one dataset in a range of time, only the columns and directories needed.

Reads older formats of a dataset together with newer ones, because the schema is the jobs' own and columns are only ever
added. Knows nothing of rollups.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields
from datetime import UTC, datetime
from pathlib import Path
from typing import NamedTuple, TypeVar

from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import Column, DataFrame, Row, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - the field's name for it

from rotunda.broker.text_table import counted
from rotunda.spark.bounded import rows_of
from rotunda.spark.failures import JobFailed
from rotunda.spark.file_system import FileSystem
from rotunda.spark.log.deleted_rows import NOTHING_DELETED, Deleted
from rotunda.spark.log.schema import FORMAT_VERSION, PARTITION_COLUMNS, SCHEMAS, no_rows
from rotunda.spark.time_range import HOUR_US, TimeRange, to_datetime

Answer = TypeVar("Answer")

#: Description of a range without missing rows.
COMPLETE = "complete: every request of the range has its row"

#: Prefix of compacted files' names, and the file with the list of files they replace.
COMPACTED = "compact-"
REPLACED = "_replaced.json"

#: Attempts of a job whose files are deleted meanwhile, and Spark's messages for such a file.
_ATTEMPTS = 3
_GONE = ("FILE_NOT_EXIST", "FileNotFoundException", "PATH_NOT_FOUND")

_VERSION = re.compile(r"v=(\d+)")
_PARTITION = re.compile(r".*/date=(\d{4}-\d\d-\d\d)/hour=(\d\d)/([^/]+)")


class Part(NamedTuple):
    """A file as the recorder finished it."""

    name: str
    size: int


class InputFile(NamedTuple):
    """A finished file of the log: the hour since the epoch of its directory, its name there, its size.

    `parts` are the recorder's files with its rows: itself, unless it was made by compaction.
    """

    hour: int
    name: str
    size_bytes: int
    parts: frozenset[Part]


@dataclass(frozen=True, slots=True)
class Coverage:
    """The log's coverage of a range: `rows` represent `requests`; `gap_rows` describe missing rows.

    `lost_rows` is the most rows that may be missing, as far as known. `files` have `file_bytes` in total. `deleted` are
    the rows that retention has deleted from hours of the hourly tables.
    """

    rows: int = 0
    requests: int = 0
    gap_rows: int = 0
    lost_rows: int = 0
    files: int = 0
    file_bytes: int = 0
    deleted: Deleted = NOTHING_DELETED

    def __add__(self, other: Coverage) -> Coverage:
        return Coverage(*(getattr(self, each.name) + getattr(other, each.name) for each in fields(self)))

    @property
    def is_complete(self) -> bool:
        """Whether each request has its row, or had it until retention deleted it."""
        return self.requests <= self.rows and not self.gap_rows

    @property
    def certainty(self) -> str:
        """The effect of sampling and gaps on a result, as a sentence."""
        parts = []
        if self.requests > self.rows:
            share = self.rows / self.requests
            parts.append(f"sampled: {counted(self.rows, 'row')} for {counted(self.requests, 'request')} ({share:.0%})")
        if self.gap_rows:
            parts.append(f"{counted(self.gap_rows, 'gap')}: up to {counted(self.lost_rows, 'row')} known to be missing")
        return "; ".join(parts) or COMPLETE


#: The empty coverage, the neutral element of addition.
NOTHING = Coverage()


def coverage_of_files(files: Sequence[InputFile]) -> Coverage:
    """Return the number and total size of files."""
    return Coverage(files=len(files), file_bytes=sum(file.size_bytes for file in files))


def coverage_of(dataset: str, rows: DataFrame) -> Coverage:
    """Return the coverage of rows of the dataset requests or gaps."""
    (counted,) = rows_of(rows.agg(*_counts_of(dataset)), 1)
    return _coverage(dataset, counted)


def coverage_by_hour(dataset: str, rows: DataFrame) -> dict[int, Coverage]:
    """Return the coverage of rows of the dataset requests or gaps, by hour since the epoch."""
    counted = rows_of(rows.groupBy(*PARTITION_COLUMNS).agg(*_counts_of(dataset)))
    return {hour_of(row.date, row.hour): _coverage(dataset, row) for row in counted}


def _counts_of(dataset: str) -> list[Column]:
    return [F.count("*").alias("rows"), F.sum("rows" if dataset == "gaps" else "sampleWeight").alias("sum")]


def _coverage(dataset: str, counted: Row) -> Coverage:
    if dataset == "gaps":
        return Coverage(gap_rows=counted["rows"], lost_rows=counted["sum"] or 0)
    return Coverage(rows=counted["rows"], requests=counted["sum"] or 0)


def lasting(work: Callable[[], Answer]) -> Answer:
    """Return the result of `work`, restarted when files are deleted while it reads them.

    Retention deletes files, compaction and rollup replace them, and neither waits for readers.
    """
    for _ in range(_ATTEMPTS - 1):
        try:
            return work()
        except (PySparkException, Py4JJavaError) as error:
            if not any(mark in str(error) for mark in _GONE):
                raise
    return work()


class RequestLog:
    """A request log below `root`, a path or URI that Spark can read.

    With `is_listed_once` the files of an hour are listed once: all frames and counts are of the same files, although
    the recorder adds files meanwhile.
    """

    def __init__(self, spark: SparkSession, root: str, *, is_listed_once: bool = False) -> None:
        self._spark = spark
        self.is_listed_once = is_listed_once
        self._listed: dict[str, dict[int, list[InputFile]]] = {}
        self._root = root.rstrip("/")
        self._file_system = FileSystem(spark, self._root)
        if not self._file_system.exists():
            raise JobFailed(f"no request log in {root}; name its directory with --input")
        self._check_versions()

    def _check_versions(self) -> None:
        for dataset in SCHEMAS:
            for name in self._file_system.names(dataset):
                version = _VERSION.fullmatch(name)
                if version and int(version[1]) != FORMAT_VERSION:
                    message = (
                        f"{self._root}/{dataset}/{name} has a format that this job does not know; it knows "
                        f"v={FORMAT_VERSION}. Use the job of the broker that wrote it"
                    )
                    raise JobFailed(message)

    @property
    def local_path(self) -> Path | None:
        """The log's directory as a path of this machine, None for another file system."""
        return self._file_system.local_path

    def has(self, dataset: str) -> bool:
        """Return whether the log has a dataset at all."""
        return self._file_system.exists(f"{dataset}/v={FORMAT_VERSION}")

    def read(self, dataset: str, time_range: TimeRange, columns: Sequence[str]) -> DataFrame:
        """Return columns of the rows in a range; `date` and `hour` are columns too. Empty without the dataset."""
        files = self.files(dataset, time_range.hours())
        return self._rows(dataset, files).where(in_hours(time_range) & _in_range(time_range)).select(*columns)

    def read_hours(
        self, dataset: str, hours: Sequence[int], columns: Sequence[str], time_range: TimeRange
    ) -> DataFrame:
        """Return columns of the rows in a range that lie in the directories of some hours since the epoch."""
        wanted = set(hours)
        files = [file for file in self.files(dataset, time_range.hours()) if file.hour in wanted]
        return self._rows(dataset, files).where(is_one_of(hours) & _in_range(time_range)).select(*columns)

    def read_files(self, dataset: str, files: Sequence[InputFile], columns: Sequence[str]) -> DataFrame:
        """Return columns of all rows of some files."""
        return self._rows(dataset, files).select(*columns)

    def _rows(self, dataset: str, files: Sequence[InputFile]) -> DataFrame:
        if not files:
            return no_rows(self._spark, SCHEMAS[dataset])
        root = self._path(dataset)
        paths = [f"{root}/{directory_of(file.hour)}/{file.name}" for file in files]
        return self._spark.read.schema(SCHEMAS[dataset]).option("basePath", root).parquet(*paths)

    def files(self, dataset: str, hours: range | None = None) -> list[InputFile]:
        """Return the finished files of a dataset, or of some hours of it, in order."""
        if hours is None or not self.is_listed_once:
            return self._list(dataset, hours)
        listed = self._listed.setdefault(dataset, {})
        if missing := [hour for hour in hours if hour not in listed]:
            listed |= {hour: [] for hour in missing}
            for file in self._list(dataset, range(missing[0], missing[-1] + 1)):
                if file.hour in missing:
                    listed[file.hour].append(file)
        return [file for hour in hours for file in listed[hour]]

    def end_us(self, time_range: TimeRange) -> int:
        """Return the time of the newest row of requests in a range, its start if there is none."""
        files = self.files("requests", time_range.hours())
        last = [file for file in files if file.hour == files[-1].hour]
        row = self.read_files("requests", last, ["time"]).agg(F.max(F.unix_micros("time")).alias("us")).first()
        return time_range.start_us if row is None or row.us is None else int(row.us)

    def _list(self, dataset: str, hours: range | None) -> list[InputFile]:
        if not self.has(dataset):
            return []
        found = self._file_system.find(f"{dataset}/v={FORMAT_VERSION}/date=*/hour=*/*.parquet", dates_of(hours))
        files = []
        for path, size, _ in found:
            place = _PARTITION.fullmatch(path)
            hour = hour_of(place[1], int(place[2])) if place else -1
            if place and (hours is None or hour in hours):
                files.append(InputFile(hour, place[3], size, self._parts(dataset, hour, place[3], size)))
        return sorted(files)

    def _parts(self, dataset: str, hour: int, name: str, size: int) -> frozenset[Part]:
        note = f"{dataset}/v={FORMAT_VERSION}/{directory_of(hour)}/{REPLACED}"
        if name.startswith(COMPACTED) and self._file_system.exists(note):
            said = json.loads(self._file_system.read(note))
            if name in said["files"]:
                return frozenset(Part(*part) for part in said["parts"])
        return frozenset({Part(name, size)})

    def coverage(self, time_range: TimeRange) -> Coverage:
        """Return the coverage of a range. Raises JobFailed when it is empty."""
        found = coverage_of_files(self.files("requests", time_range.hours()))
        for dataset, column in (("requests", "sampleWeight"), ("gaps", "rows")):
            found += coverage_of(dataset, self.read(dataset, time_range, [column]))
        return self.checked(found, time_range)

    def checked(self, coverage: Coverage, time_range: TimeRange) -> Coverage:
        """Return a coverage unchanged. Raises JobFailed when it has no requests."""
        if not coverage.rows:
            raise JobFailed(self._nothing_in(time_range))
        return coverage

    def _nothing_in(self, time_range: TimeRange) -> str:
        hours = [file.hour for file in self.files("requests")]
        if not hours:
            return f"no requests in {self._root}: no finished file yet (see request.log.roll.ms)"
        first, last = to_datetime(hours[0] * HOUR_US), to_datetime((hours[-1] + 1) * HOUR_US)
        span = f"{first:%Y-%m-%d %H:%M} to {last:%Y-%m-%d %H:%M} UTC"
        return f"no requests from {time_range} in {self._root}; it has those of {span}"

    def _path(self, dataset: str) -> str:
        return f"{self._root}/{dataset}/v={FORMAT_VERSION}"


def directory_of(hour: int) -> str:
    """Return the directory of an hour since the epoch in a dataset."""
    return f"{to_datetime(hour * HOUR_US):date=%Y-%m-%d/hour=%H}"


def dates_of(hours: range | None) -> tuple[str, str] | None:
    """Return the first and the last date of hours since the epoch, None without hours."""
    if not hours:
        return None
    first, last = (f"{to_datetime(hour * HOUR_US):%Y-%m-%d}" for hour in (hours[0], hours[-1]))
    return first, last


def in_hours(time_range: TimeRange) -> Column:
    """Return the condition that a row's directory is of an hour in the range: Spark skips the others."""
    hours = time_range.hours()
    return _from_hour(hours[0]) & ~_from_hour(hours[-1] + 1)


def _from_hour(hour: int) -> Column:
    time = to_datetime(hour * HOUR_US)
    date = f"{time:%Y-%m-%d}"
    return (F.col("date") > date) | ((F.col("date") == date) & (F.col("hour") >= time.hour))


def is_one_of(hours: Sequence[int]) -> Column:
    """Return the condition that a row's directory is of one of these hours since the epoch."""
    condition = F.lit(False)
    by_date: dict[str, list[int]] = {}
    for hour in hours:
        time = to_datetime(hour * HOUR_US)
        by_date.setdefault(f"{time:%Y-%m-%d}", []).append(time.hour)
    for date, of_day in by_date.items():
        condition |= (F.col("date") == date) & F.col("hour").isin(of_day)
    return condition


def _in_range(time_range: TimeRange) -> Column:
    return (F.col("time") >= F.lit(time_range.start)) & (F.col("time") < F.lit(time_range.end))


def hour_of(date: str, hour: int) -> int:
    """Return the hour since the epoch that a directory names."""
    return int(datetime.fromisoformat(f"{date}T{hour:02}:00").replace(tzinfo=UTC).timestamp()) // 3600
