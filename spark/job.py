"""A job: one report, its options, and the common steps of every run.

A run parses the command line, opens the log, computes the result, writes it with a summary and a chart, and prints a
short table. Every expected failure is one line on stderr and exit code 1.
"""

from __future__ import annotations

import argparse
import shlex
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import PurePosixPath
from typing import TYPE_CHECKING

from rotunda.spark.failures import JobFailed
from rotunda.spark.progress import progress
from rotunda.spark.results.output import Run, write_summary, write_tables
from rotunda.spark.results.result import Result
from rotunda.spark.results.text_table import lines, printable
from rotunda.spark.session import session
from rotunda.spark.time_range import TimeRange

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from rotunda.spark.hourly.rollups import Rollups
    from rotunda.spark.log.request_log import RequestLog

FORMATS = ("parquet", "csv", "json")
#: Rows of the table on stdout, fewer than in the summary.
SHORT_ROWS = 20


@dataclass(frozen=True, slots=True)
class Context:
    """Inputs of a job: the session, the log and its rollups, the range, and its own parsed options."""

    spark: SparkSession
    log: RequestLog
    rollups: Rollups
    time_range: TimeRange
    options: argparse.Namespace
    now: datetime


@dataclass(frozen=True, slots=True)
class Job:
    """One report and its function. `answer` raises JobFailed; `add_options` adds the job's own options."""

    name: str
    question: str
    answer: Callable[[Context], Result]
    add_options: Callable[[argparse.ArgumentParser], None] = lambda _: None


def main(job: Job, arguments: Sequence[str] | None = None) -> int:
    """Run a job from a command line and return the exit code: 0, 1 for a failure, 2 for bad usage."""
    given = sys.argv[1:] if arguments is None else arguments
    return reported(
        job.name, lambda: _run(job, _parser(job).parse_args(given), shlex.join(["rotunda", "report", job.name, *given]))
    )


def reported(name: str, work: Callable[[], None]) -> int:
    """Run `work`, print its failure as one line, and return the exit code."""
    try:
        work()
    except JobFailed as failure:
        print(f"rotunda report {name}: {failure}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return 130
    return 0


def _parser(job: Job) -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog=f"rotunda report {job.name}", description=job.question)
    add_common_options(parser)
    job.add_options(parser)
    return parser


def add_common_options(parser: argparse.ArgumentParser) -> None:
    """Add the options that every job has."""
    parser.add_argument("--input", required=True, metavar="DIR", help="the request log: a directory or a URI")
    parser.add_argument("--output", required=True, metavar="DIR", help="directory of result, summary and chart")
    parser.add_argument(
        "--rollups", metavar="DIR", help="directory of the hourly tables (default: rollups, next to the log)"
    )
    parser.add_argument("--from", default="24h", dest="start", metavar="TIME", help="`24h` ago or an ISO time (24h)")
    parser.add_argument("--to", default="now", dest="end", metavar="TIME", help="`1h` ago, an ISO time, or `now` (now)")
    parser.add_argument("--format", choices=FORMATS, default="parquet", help="of the result (default: parquet)")
    parser.add_argument("--master", metavar="URL", help="Spark master (default: that of spark-submit)")


def _run(job: Job, options: argparse.Namespace, command: str) -> None:
    now = datetime.now(UTC)
    time_range = TimeRange.of(options.start, options.end, now)
    with session(job.name, options.master) as spark, progress(spark, job.name):
        from rotunda.spark.hourly.rollups import Rollups  # noqa: PLC0415
        from rotunda.spark.log.request_log import RequestLog, lasting  # noqa: PLC0415 - imports pyspark, which complaints need not wait for

        log = RequestLog(spark, options.input)
        rollups = Rollups(spark, options.rollups or _beside(options.input, "rollups"), log)
        context = Context(spark, log, rollups, time_range, options, now)

        def answered() -> tuple[Result, dict[str, DataFrame]]:
            result = job.answer(context)
            return result, write_tables(result, options.output, options.format)

        result, tables = lasting(answered)
        ended = datetime.now(UTC)
        run = Run(job.name, job.question, command, time_range, ended, (ended - now).total_seconds())
        name, rows = next(iter(write_summary(spark, run, result, tables, options.output).items()))
        columns = tables[name].columns
    print(f"{printable(result.headline)}\n")
    for line in lines(columns, rows[:SHORT_ROWS]):
        print(line)
    if len(rows) > SHORT_ROWS:
        print(f"... the first {SHORT_ROWS} rows; all are in {options.output}/{name}")
    print(f"\n{time_range}; {result.certainty}")


def _beside(path: str, name: str) -> str:
    scheme, separator, rest = path.rstrip("/").rpartition("://")
    return f"{scheme}{separator}{PurePosixPath(rest).parent / name}"
