"""Compacts the small files of closed hours into few sorted ones, while the log is written and read."""

from __future__ import annotations

import argparse
import shutil
import sys
from collections import defaultdict
from datetime import datetime
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession

from rotunda.broker.text_table import counted
from rotunda.spark.failures import JobFailed
from rotunda.spark.file_system import FileSystem
from rotunda.spark.hourly.compaction import ASIDE, HourCompaction, check_exchange, recover
from rotunda.spark.hourly.lock import exclusive
from rotunda.spark.job import Context, Job, main
from rotunda.spark.log.request_log import InputFile, directory_of
from rotunda.spark.log.schema import FORMAT_VERSION, SCHEMAS
from rotunda.spark.results.result import Result
from rotunda.spark.time_range import HOUR_US, duration_of, to_datetime, to_us

#: The datasets with several files an hour: the recorder replaces the one of the history.
_DATASETS = tuple(name for name in SCHEMAS if name != "history")
#: Approximate size of a new file.
_FILE_BYTES = 256 << 20


def answer(context: Context) -> Result:
    """Compact the closed hours of the range that have several files."""
    root = context.log.local_path
    if root is None:
        raise JobFailed("compact puts files into each other's place, which it can on a local file system alone")
    closed_us = to_us(context.now - duration_of(context.options.grace))
    hours = [hour for hour in context.time_range.hours() if (hour + 1) * HOUR_US <= closed_us]
    done: list[tuple[str, datetime, int, int]] = []
    with exclusive(FileSystem(context.spark, str(root)), "compact"):
        recover(root)
        check_exchange(root / ASIDE)
        # A file added since an hour was stored must not be merged with stored ones: once retention has deleted some of
        # these, the rows to add could not be distinguished.
        late = context.rollups.late(context.time_range.hours())
        for dataset in _DATASETS:
            by_hour: dict[int, list[InputFile]] = defaultdict(list)
            for file in context.log.files(dataset, context.time_range.hours()):
                if file not in late.get(dataset, ()):
                    by_hour[file.hour].append(file)
            for hour in hours:
                if len(by_hour[hour]) > _wanted(by_hour[hour]):
                    files = compact(context.spark, root, dataset, by_hour[hour])
                    done.append((dataset, to_datetime(hour * HOUR_US), len(by_hour[hour]), files))
        shutil.rmtree(root / ASIDE, ignore_errors=True)
    table = context.spark.createDataFrame(done, "dataset string, hour timestamp, filesBefore long, files long")
    before, after = sum(row[2] for row in done), sum(row[3] for row in done)
    headline = f"{counted(before, 'file')} became {after:,}"
    return Result(headline, {"compact": table}, context.rollups.coverage(context.time_range))


def compact(spark: SparkSession, root: Path, dataset: str, files: list[InputFile]) -> int:
    """Merge the files of an hour and return the new number of files; the old number when one of them was deleted."""
    hour = f"{dataset}/v={FORMAT_VERSION}/{directory_of(files[0].hour)}"
    directory, aside = root / hour, root / ASIDE / hour
    paths = [str(directory / file.name) for file in files]
    written = root / ASIDE / "written"
    # Use the files' own schemas: a column unknown to this job is preserved too.
    rows = spark.read.option("mergeSchema", "true").parquet(*paths)
    writer = transform(rows, _wanted(files)).write.mode("overwrite").option("compression", "zstd")
    writer.parquet(str(written))
    new = spark.read.parquet(str(written))
    if new.count() != rows.count():
        raise JobFailed(f"the files of {directory} changed while they were read; run compact again")
    names = {file.name: file.parts for file in files}
    made = sorted(written.glob("*.parquet"))
    return HourCompaction(directory, aside / written_name(made), names).replace(made)


def transform(rows: DataFrame, files: int) -> DataFrame:
    """Return rows partitioned into this number of files: sorted by time, within files and from one to the next."""
    placed = rows.coalesce(1) if files == 1 else rows.repartitionByRange(files, "time")
    return placed.sortWithinPartitions("time")


def written_name(made: list[Path]) -> str:
    """Return a name unique among compactions: Spark's name for its output."""
    return made[0].name.split("-", 2)[2].partition(".")[0]


def _wanted(files: list[InputFile]) -> int:
    return max(1, -(-sum(file.size_bytes for file in files) // _FILE_BYTES))


def _add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--grace", default="10m", metavar="TIME", help="how long after its end an hour is closed (10m)")


JOB = Job("compact", __doc__ or "", answer, _add_options, changes_log=True)

if __name__ == "__main__":
    sys.exit(main(JOB))
