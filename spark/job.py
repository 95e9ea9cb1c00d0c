"""A job: one report, its options, and the common steps of every run.

A run parses the command line, opens the log, computes the result, writes it with a summary and a chart, and prints a
short table. Every expected failure is one line on stderr and exit code 1.
"""

from __future__ import annotations

import argparse
import shlex
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from functools import partial
from pathlib import PurePosixPath
from typing import TYPE_CHECKING

from rotunda.spark.failures import JobFailed
from rotunda.spark.progress import progress
from rotunda.spark.results.output import Run, write_summary, write_tables
from rotunda.spark.results.result import Result
from rotunda.spark.results.text_table import lines, printable
from rotunda.spark.session import session
from rotunda.spark.time_range import HOUR_US, NOW, TimeRange, to_datetime

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from rotunda.spark.hourly.rollups import Rollups
    from rotunda.spark.log.request_log import RequestLog

FORMATS = ("parquet", "csv", "json")
#: Longest range of a brief job.
_BRIEF_US = 2 * HOUR_US
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
    """One report and its function. `answer` raises JobFailed; `add_options` adds the job's own options.

    A job that `changes_log`, or its hourly tables, lists their files again whenever it needs them.
    """

    name: str
    question: str
    answer: Callable[[Context], Result]
    add_options: Callable[[argparse.ArgumentParser], None] = lambda _: None
    changes_log: bool = False


def main(job: Job, arguments: Sequence[str] | None = None) -> int:
    """Run a job from a command line and return the exit code: 0, 1 for a failure, 2 for bad usage."""
    given = sys.argv[1:] if arguments is None else arguments
    return reported(
        job.name, lambda: _run(job, _parser(job).parse_args(given), shlex.join(["rotunda", "report", job.name, *given]))
    )


def run_all(jobs: Sequence[Job], arguments: Sequence[str]) -> int:
    """Run jobs with their default options in one session, and return 1 if one of them failed."""
    parser = argparse.ArgumentParser(prog="rotunda report all", description="Run every report, in one Spark session.")
    add_common_options(parser)
    options = parser.parse_args(arguments)

    def run(spark: SparkSession, job: Job) -> None:
        own = _parser(job).parse_args(["--input", options.input, "--output", options.output])
        given = {**vars(own), **vars(options), "output": f"{options.output.rstrip('/')}/{job.name}"}
        _report(spark, job, argparse.Namespace(**given), shlex.join(["rotunda", "report", job.name, *arguments]))

    def run_each() -> None:
        failed = []
        with session("all", options.master, is_brief=_is_brief(options)) as spark:
            for job in jobs:
                print(f"== {job.name}", flush=True)
                if reported(job.name, partial(run, spark, job)):
                    failed.append(job.name)
                print(flush=True)
        if failed:
            raise JobFailed(f"{len(failed)} of {len(jobs)} reports failed: {', '.join(failed)}")

    return reported("all", run_each)


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
    parser.add_argument(
        "--input", required=True, metavar="DIR", help="the request log: a directory or a URI; set by `rotunda report`"
    )
    parser.add_argument(
        "--output", required=True, metavar="DIR", help="directory of result, summary and chart; set by `rotunda report`"
    )
    parser.add_argument(
        "--rollups", metavar="DIR", help="directory of the hourly tables (default: rollups, next to the log)"
    )
    parser.add_argument(
        "--from", default="24h", dest="start", metavar="TIME", help="a duration ago or an ISO time (24h)"
    )
    parser.add_argument("--to", default=NOW, dest="end", metavar="TIME", help="`1h` ago, an ISO time, or `now` (now)")
    parser.add_argument("--format", choices=FORMATS, default="parquet", help="format of the result (default: parquet)")
    parser.add_argument("--master", metavar="URL", help="Spark master (default: that of spark-submit)")


def _run(job: Job, options: argparse.Namespace, command: str) -> None:
    with session(job.name, options.master, is_brief=_is_brief(options)) as spark:
        _report(spark, job, options, command)


def _is_brief(options: argparse.Namespace) -> bool:
    """Return whether the range is short. Raises JobFailed for an invalid one, before Spark starts."""
    asked = TimeRange.of(options.start, options.end, datetime.now(UTC))
    return asked.end_us - asked.start_us <= _BRIEF_US


def _report(spark: SparkSession, job: Job, options: argparse.Namespace, command: str) -> None:
    """Compute, write and print the result of a job."""
    from rotunda.spark.log.request_log import lasting  # noqa: PLC0415 - imports pyspark, which complaints need not wait for

    now = datetime.now(UTC)
    time_range = TimeRange.of(options.start, options.end, now)
    with progress(spark, job.name):

        def answered() -> tuple[Result, dict[str, DataFrame]]:
            context = _context(spark, job, options, time_range, now)
            result = job.answer(context)
            if options.end == NOW:
                result = replace(result, unwritten=_unwritten(context))
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


def _context(
    spark: SparkSession, job: Job, options: argparse.Namespace, time_range: TimeRange, now: datetime
) -> Context:
    from rotunda.spark.hourly.rollups import Rollups  # noqa: PLC0415
    from rotunda.spark.log.request_log import RequestLog  # noqa: PLC0415

    log = RequestLog(spark, options.input, is_listed_once=not job.changes_log)
    rollups = Rollups(spark, options.rollups or _beside(options.input, "rollups"), log)
    return Context(spark, log, rollups, time_range, options, now)


def _unwritten(context: Context) -> str:
    """Return a sentence about the requests before `now` that the recorder has not written yet."""
    end_us = context.log.end_us(context.time_range)
    after_s = (context.time_range.end_us - end_us) // 1_000_000
    return f"the log on disk ends at {to_datetime(end_us):%H:%M:%S}, {after_s:,} s before now"


def _beside(path: str, name: str) -> str:
    scheme, separator, rest = path.rstrip("/").rpartition("://")
    return f"{scheme}{separator}{PurePosixPath(rest).parent / name}"
