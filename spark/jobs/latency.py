"""The latency report: quantiles of request times and the share of each phase, grouped by an option."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from datetime import datetime
from functools import reduce

from pyspark.sql import DataFrame, Row
from pyspark.sql import functions as F  # noqa: N812 - the field's name for it

from rotunda.broker.text_table import counted
from rotunda.spark.bounded import rows_of
from rotunda.spark.failures import JobFailed
from rotunda.spark.hourly.histogram import quantiles, with_buckets
from rotunda.spark.hourly.rollups import PHASES, Rollups
from rotunda.spark.job import Context, Job, main
from rotunda.spark.log.request_log import Coverage
from rotunda.spark.options import length_us
from rotunda.spark.results.charts import Chart, Series
from rotunda.spark.results.result import Result
from rotunda.spark.results.text_table import cell
from rotunda.spark.time_range import TimeRange, to_datetime

#: Groupings of rows, and the columns of each.
GROUPINGS = {
    "api": ("requestApiKeyName",),
    "version": ("requestApiKeyName", "requestApiVersion"),
    "client": ("clientId",),
    "listener": ("listener",),
    "hour": ("date", "hour"),
    "all": (),
}
QUANTILES = {"p50Us": 0.5, "p95Us": 0.95, "p99Us": 0.99, "p999Us": 0.999}
_SUMS = ("requests", *PHASES)
_SHARES = {phase: f"{phase.removesuffix('TimeUs')}Share" for phase in PHASES if phase != "totalTimeUs"}
#: Name and colour of each phase in the chart, in the order of the phases, the same as on the status page.
_TITLES = (("queue", 2), ("handler", 1), ("waiting", 5), ("response queue", 3), ("send", 4))
_BARS, _LINES = 12, 6
#: Most windows in a range: a chart of more is unreadable.
_MOST_WINDOWS = 2000
_MINUTE_US = 60_000_000
#: Limits of windows where rows have been deleted.
_LACKING = "windows in them have only the remaining rows; without --window they are from the hourly tables"


def counts_of_tables(requests: DataFrame, latencies: DataFrame, by: Sequence[str]) -> DataFrame:
    """Return the input counts of `transform` from the hourly tables."""
    summed = requests.groupBy(*by).agg(*(F.sum(name).alias(name) for name in _SUMS))
    sums = summed.select(*by, F.lit(None).cast("int").alias("bucket"), F.lit(0).alias("inBucket"), *_SUMS)
    keys = requests.select("date", "hour", "key", *(name for name in by if name not in ("date", "hour")))
    totals = latencies.where(F.col("phase") == "totalTimeUs").withColumnRenamed("requests", "inBucket")
    counted = totals.join(keys, ["date", "hour", "key"]).groupBy(*by, "bucket").agg(F.sum("inBucket").alias("inBucket"))
    return sums.unionByName(counted, allowMissingColumns=True)


def counts_of_rows(rows: DataFrame, by: Sequence[str], window_us: int | None = None) -> DataFrame:
    """Return the input counts of `transform` from rows of the log, by `window` (its start time) if given.

    Buckets and sums are computed from the same groups: the log is read once.
    """
    keys = [F.col(name) for name in by]
    if window_us is not None:
        begin = F.floor(F.unix_micros("time") / window_us) * window_us
        keys.insert(0, F.timestamp_micros(begin).alias("window"))
    weight = F.col("sampleWeight").cast("long")
    sums = (F.sum(F.col(phase) * weight).alias(phase) for phase in PHASES)
    counted = with_buckets(rows.withColumn("bucket", F.col("totalTimeUs")), ["bucket"]).groupBy(*keys, "bucket")
    return counted.agg(F.sum(weight).alias("requests"), *sums).withColumn("inBucket", F.col("requests"))


def transform(counts: DataFrame, by: Sequence[str]) -> DataFrame:
    """Return quantiles of the total time in microseconds and the phases' shares of it, most requests first.

    `counts` has, by grouping columns (`by`) and buckets of the total time, the number of requests in the bucket
    (`inBucket`), and sums. Rows without a bucket have only sums, rows without sums only a bucket.
    """
    sums = counts.groupBy(*by).agg(*(F.sum(name).alias(name) for name in _SUMS))
    found = quantiles(counts.where(F.col("bucket").isNotNull()), by, QUANTILES, "inBucket")
    windows = [name for name in by if name == "window"]
    return _joined(sums, found, by).orderBy(*windows, F.desc("requests"), *by)


def _joined(sums: DataFrame, found: DataFrame, by: Sequence[str]) -> DataFrame:
    shares = [
        F.when(F.col("totalTimeUs") > 0, F.col(phase) / F.col("totalTimeUs")).otherwise(F.lit(0.0)).alias(name)
        for phase, name in _SHARES.items()
    ]
    # A client without an id is a client too: nulls are equal here.
    joined = sums.join(found, [F.lit(True), *(sums[name].eqNullSafe(found[name]) for name in by)])
    mean = (F.col("totalTimeUs") / F.col("requests")).alias("meanUs")
    return joined.select(*(sums[name] for name in by), "requests", mean, *QUANTILES, *shares)


def counts(rollups: Rollups, time_range: TimeRange, by: Sequence[str]) -> DataFrame:
    """Return the input counts of `transform`: from stored hours, and the others from the log."""
    requests, latencies, rest = rollups.read_apart(time_range, (*by, *PHASES, "sampleWeight"))
    found = counts_of_tables(requests, latencies, by)
    return reduce(DataFrame.unionByName, (counts_of_rows(rows, by) for rows in rest), found)


def answer(context: Context) -> Result:
    """Return the latencies of a range."""
    by, window_us = GROUPINGS[context.options.by], context.options.window
    if window_us is not None:
        return _answer_windows(context, by, window_us)
    coverage = context.rollups.coverage(context.time_range)
    table = transform(counts(context.rollups, context.time_range, by).cache(), by).cache()
    rows = table.take(_BARS)
    worst = max(rows, key=lambda row: row.p99Us)
    labels = [_label(row, by) for row in rows]
    series = [
        Series(title, [row.meanUs * row[name] for row in rows], colour)
        for name, (title, colour) in zip(_SHARES.values(), _TITLES, strict=True)
    ]
    chart = Chart("Mean time of a request by phase", "shares", labels, series, "µs")
    return Result(_headline(coverage, worst, by), {"latency": table}, coverage, chart)


def _answer_windows(context: Context, by: Sequence[str], window_us: int) -> Result:
    time_range = context.time_range
    windows = range(time_range.start_us // window_us, -(-time_range.end_us // window_us))
    if by == GROUPINGS["hour"]:
        raise JobFailed("--by hour is a window of its own; leave it out, or --window")
    if len(windows) > _MOST_WINDOWS:
        raise JobFailed(f"--window cuts the range into {len(windows):,} windows; {_MOST_WINDOWS:,} are the most")
    coverage = context.rollups.coverage_of_rows(time_range)
    rows = context.log.read("requests", time_range, ("time", *by, *PHASES, "sampleWeight"))
    table = transform(counts_of_rows(rows, by, window_us).cache(), ("window", *by)).cache()
    worst = table.orderBy(F.desc("p99Us"), "window", *by).take(1)[0]
    when = f" from {to_datetime(_begin_us(worst)):%Y-%m-%d %H:%M:%S}"
    chart = _chart_over_time(table, by, windows, window_us)
    return Result(_headline(coverage, worst, by) + when, {"latency": table}, coverage, chart, lacking=_LACKING)


def _chart_over_time(table: DataFrame, by: Sequence[str], windows: range, window_us: int) -> Chart:
    begins = [number * window_us for number in windows]
    labels = [f"{to_datetime(us):{'%m-%d %H:%M' if window_us % _MINUTE_US == 0 else '%H:%M:%S'}}" for us in begins]
    if not by:
        of_window = {_begin_us(row): row for row in rows_of(table)}
        quantile_lines = [
            Series(f"p{fraction * 100:g}", [_value(of_window.get(us), name) for us in begins])
            for name, fraction in QUANTILES.items()
        ]
        return Chart("Time of a request", "lines", labels, quantile_lines, "µs")
    most = table.groupBy(*by).agg(F.sum("requests").alias("_all")).orderBy(F.desc("_all"), *by).limit(_LINES)
    groups = rows_of(most.select(*by))
    same = [table[name].eqNullSafe(most[name]) for name in by]
    of_group = {(_begin_us(row), _label(row, by)): row for row in rows_of(table.join(F.broadcast(most), same, "semi"))}
    names = [_label(group, by) for group in groups]
    series = [Series(name, [_value(of_group.get((us, name)), "p99Us") for us in begins]) for name in names]
    return Chart("p99 of the time of a request", "lines", labels, series, "µs")


def _value(row: Row | None, name: str) -> float | None:
    return None if row is None else row[name]


def _begin_us(row: Row) -> int:
    # Spark returns times to the driver in the machine's time zone, without a zone.
    begin: datetime = row.window
    return round(begin.timestamp()) * 1_000_000


def _label(row: Row, by: Sequence[str]) -> str:
    return " ".join(cell(row[name]) for name in by) or "all"


def _headline(coverage: Coverage, worst: Row, by: Sequence[str]) -> str:
    return f"{counted(coverage.requests, 'request')}; slowest is {_label(worst, by)}: p99 {worst.p99Us / 1000:,.2f} ms"


def _add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--by", choices=list(GROUPINGS), default="api", help="grouping of the rows (default: api)")
    parser.add_argument(
        "--window",
        type=length_us,
        metavar="TIME",
        help="also group by windows of this length, such as 5m (default: none)",
    )


JOB = Job("latency", __doc__ or "", answer, _add_options)

if __name__ == "__main__":
    sys.exit(main(JOB))
