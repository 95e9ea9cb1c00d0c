"""Updates the hourly tables: closed hours that are new or have late files, and no others."""

from __future__ import annotations

import argparse
import sys

from rotunda.broker.text_table import counted
from rotunda.spark.job import Context, Job, main
from rotunda.spark.results.result import Result
from rotunda.spark.time_range import HOUR_US, duration_of, to_datetime, to_us


def answer(context: Context) -> Result:
    """Store the hours of the range that are closed and out of date."""
    closed_us = to_us(context.now - duration_of(context.options.grace))
    done = context.rollups.store(hour for hour in context.time_range.hours() if (hour + 1) * HOUR_US <= closed_us)
    hours = [
        (to_datetime(hour * HOUR_US), len(files), sum(file.size_bytes for file in files))
        for hour, files in sorted(done.items())
    ]
    table = context.spark.createDataFrame(hours, "hour timestamp, files long, bytes long")
    coverage = context.rollups.coverage(context.time_range)
    return Result(f"{counted(len(done), 'hour')} brought up to date", {"rollup": table}, coverage)


def _add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--grace", default="10m", metavar="TIME", help="how long after its end an hour is closed (10m)")


JOB = Job("rollup", __doc__ or "", answer, _add_options, changes_log=True)

if __name__ == "__main__":
    sys.exit(main(JOB))
