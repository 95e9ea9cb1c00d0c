"""The request log as data frames: rows of one dataset in a range of time, only the columns and directories needed.

Reads older formats of a dataset beside newer ones, because the schema is ours and columns are only ever added. Knows
nothing of rollups.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import NamedTuple

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - the field's name for it

from spark.failures import JobFailed
from spark.schema import FORMAT_VERSION, SCHEMAS
from spark.storage import Storage
from spark.time_range import HOUR_US, TimeRange, to_datetime

_VERSION = re.compile(r"v=(\d+)")
_PARTITION = re.compile(r".*/date=(\d{4}-\d\d-\d\d)/hour=(\d\d)/([^/]+)")


class InputFile(NamedTuple):
    """A finished file of the log: the hour since the epoch whose directory it lies in, its name there, its size."""

    hour: int
    name: str
    size_bytes: int


@dataclass(frozen=True, slots=True)
class Coverage:
    """What the log has of the requests in a range: `rows` stand for `requests`; `gap_rows` say what is missing.

    `lost_rows` is how many rows are missing at most, as far as that is known.
    """

    rows: int
    requests: int
    gap_rows: int
    lost_rows: int

    @property
    def certainty(self) -> str:
        """What sampling and gaps do to an answer, in a sentence."""
        parts = []
        if self.requests > self.rows:
            share = self.rows / self.requests
            parts.append(f"sampled: {self.rows:,} rows stand for {self.requests:,} requests ({share:.0%})")
        if self.gap_rows:
            parts.append(f"{self.gap_rows:,} gaps: up to {self.lost_rows:,} rows known to be missing")
        return "; ".join(parts) or "complete: every request of the range has its row"


class RequestLog:
    """A request log below `root`, a path or URI that Spark can read."""

    def __init__(self, spark: SparkSession, root: str) -> None:
        self._spark = spark
        self._root = root.rstrip("/")
        self._storage = Storage(spark, self._root)
        if not self._storage.exists():
            raise JobFailed(f"there is no request log in {root}; name its directory with --input")
        self._check_versions()

    def _check_versions(self) -> None:
        for dataset in SCHEMAS:
            for name in self._storage.names(dataset):
                version = _VERSION.fullmatch(name)
                if version and int(version[1]) != FORMAT_VERSION:
                    message = (
                        f"{self._root}/{dataset}/{name} has a format that this job does not know; it knows "
                        f"v={FORMAT_VERSION}. Use the job of the broker that wrote it"
                    )
                    raise JobFailed(message)

    def has(self, dataset: str) -> bool:
        """Return whether the log has a dataset at all."""
        return self._storage.exists(f"{dataset}/v={FORMAT_VERSION}")

    def read(self, dataset: str, time_range: TimeRange, columns: Sequence[str]) -> DataFrame:
        """Return columns of the rows in a range; `date` and `hour` are columns too. No rows if there is no dataset."""
        schema = SCHEMAS[dataset]
        if not self.has(dataset):
            return self._spark.createDataFrame([], schema).select(*columns)
        rows = self._spark.read.schema(schema).parquet(self._path(dataset))
        return rows.where(in_hours(time_range) & _in_range(time_range)).select(*columns)

    def read_hours(self, dataset: str, hours: Sequence[int], columns: Sequence[str]) -> DataFrame:
        """Return columns of all rows that lie in the directories of some hours since the epoch."""
        rows = self._spark.read.schema(SCHEMAS[dataset]).parquet(self._path(dataset))
        return rows.where(is_one_of(hours)).select(*columns)

    def files(self, dataset: str, hours: range | None = None) -> list[InputFile]:
        """Return the finished files of a dataset, or of some hours of it, in order."""
        if not self.has(dataset):
            return []
        listed = self._spark.read.format("binaryFile").option("recursiveFileLookup", "true")
        found = listed.option("pathGlobFilter", "*.parquet").load(self._path(dataset)).select("path", "length")
        files = []
        for row in found.collect():
            place = _PARTITION.fullmatch(row.path)
            if place:
                files.append(InputFile(_hour_of(place[1], place[2]), place[3], row.length))
        return sorted(file for file in files if hours is None or file.hour in hours)

    def coverage(self, time_range: TimeRange) -> Coverage:
        """Return what the log has of a range. Raises JobFailed when that is nothing."""
        requests = self.read("requests", time_range, ["sampleWeight"])
        counted = requests.agg(F.count("*").alias("rows"), F.sum("sampleWeight").alias("requests")).first()
        gaps = self.read("gaps", time_range, ["rows"])
        lost = gaps.agg(F.count("*").alias("gaps"), F.sum("rows").alias("rows")).first()
        assert counted is not None  # noqa: S101 - an aggregate of everything has one row
        assert lost is not None  # noqa: S101
        if not counted.rows:
            raise JobFailed(self._nothing_in(time_range))
        return Coverage(counted.rows, counted.requests, lost.gaps, lost.rows or 0)

    def _nothing_in(self, time_range: TimeRange) -> str:
        hours = [file.hour for file in self.files("requests")]
        if not hours:
            return f"there are no requests in {self._root}: no finished file yet (see request.log.roll.ms)"
        first, last = to_datetime(hours[0] * HOUR_US), to_datetime((hours[-1] + 1) * HOUR_US)
        span = f"{first:%Y-%m-%d %H:%M} to {last:%Y-%m-%d %H:%M} UTC"
        return f"there are no requests from {time_range} in {self._root}; it has those of {span}"

    def _path(self, dataset: str) -> str:
        return f"{self._root}/{dataset}/v={FORMAT_VERSION}"


def in_hours(time_range: TimeRange) -> Column:
    """Return the condition that a row's directory is of an hour that a range touches: Spark passes over the others."""
    hours = time_range.hours()
    return _from_hour(hours[0]) & ~_from_hour(hours[-1] + 1)


def _from_hour(hour: int) -> Column:
    time = to_datetime(hour * HOUR_US)
    date = f"{time:%Y-%m-%d}"
    return (F.col("date") > date) | ((F.col("date") == date) & (F.col("hour") >= time.hour))


def is_one_of(hours: Sequence[int]) -> Column:
    """Return the condition that a row's directory is of one of some hours since the epoch."""
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


def _hour_of(date: str, hour: str) -> int:
    return int(datetime.fromisoformat(f"{date}T{hour}:00").replace(tzinfo=UTC).timestamp()) // 3600
