"""The errors report: by API, code and client, with first time, bursts, and share of all requests.

A burst is a run of errors of one API, code and client in which no two neighbours lie further apart than --burst-gap,
and which has at least --burst-errors of them. Its peak is its most errors in one second of the clock.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence

from pyspark.sql import Column, DataFrame, Row, Window
from pyspark.sql import functions as F  # noqa: N812 - the field's name for it

from rotunda.broker.text_table import counted
from rotunda.spark.job import Context, Job, main
from rotunda.spark.log.request_log import Coverage, is_one_of
from rotunda.spark.log.schema import PARTITION_COLUMNS
from rotunda.spark.options import length_us, positive
from rotunda.spark.results.result import Result
from rotunda.spark.results.text_table import cell

COLUMNS = ("time", "requestApiKeyName", "errorCode", "errorName", "clientId", "sampleWeight")
_KINDS = ("requestApiKeyName", "errorCode", "errorName", "clientId")
#: Most bursts in the result; the largest are included.
_MOST_BURSTS = 1000
_SECOND_US = 1_000_000
#: Limits of the result where rows have been deleted.
_LACKING = "errors are from the hourly tables there; bursts and peaks of them are not known"


def runs(errors: DataFrame, gap_us: int) -> DataFrame:
    """Return a row for each run of errors: its kind, `errors`, `firstSeen`, `lastSeen` and `peakPerSecond`."""
    in_order = Window.partitionBy(*_KINDS).orderBy("us")
    so_far = in_order.rowsBetween(Window.unboundedPreceding, Window.currentRow)
    timed = errors.where(F.col("errorCode") != 0).select(*_KINDS, F.unix_micros("time").alias("us"), "sampleWeight")
    begins = F.coalesce(F.col("us") - F.lag("us").over(in_order) > gap_us, F.lit(True))
    marked = timed.select("*", begins.cast("int").alias("begins"))
    second = F.floor(F.col("us") / _SECOND_US).alias("second")
    numbered = marked.select(*_KINDS, "us", "sampleWeight", second, F.sum("begins").over(so_far).alias("run"))
    seconds = numbered.groupBy(*_KINDS, "run", "second").agg(
        F.sum("sampleWeight").alias("errors"), F.min("us").alias("first"), F.max("us").alias("last")
    )
    found = seconds.groupBy(*_KINDS, "run").agg(
        F.sum("errors").alias("errors"),
        F.min("first").alias("first"),
        F.max("last").alias("last"),
        F.max("errors").alias("peakPerSecond"),
    )
    first, last = (F.timestamp_micros(F.col(name)).alias(f"{name}Seen") for name in ("first", "last"))
    return found.select(*_KINDS, "errors", first, last, "peakPerSecond")


def hourly_errors(table: DataFrame) -> DataFrame:
    """Return errors from rows of the hourly table in the format of `runs`; their `peakPerSecond` is unknown."""
    failed = table.where(F.col("errorCode") != 0).groupBy(*_KINDS)
    return failed.agg(
        F.sum("requests").alias("errors"),
        F.min("firstTime").alias("firstSeen"),
        F.max("lastTime").alias("lastSeen"),
        F.lit(None).cast("long").alias("peakPerSecond"),
    )


def bursts(found: DataFrame, least: int) -> DataFrame:
    """Return the runs of at least `least` errors with their length in seconds, the largest first."""
    seconds = (F.unix_micros("lastSeen") - F.unix_micros("firstSeen")) / _SECOND_US
    enough = found.where(_is_burst(least)).select(
        *_KINDS, "errors", "firstSeen", "lastSeen", seconds.alias("seconds"), "peakPerSecond"
    )
    return enough.orderBy(F.desc("errors"), "firstSeen", *_KINDS)


def transform(found: DataFrame, requests: DataFrame, least: int) -> DataFrame:
    """Return errors by kind, most first. `found` are runs, `requests` has the requests of each client."""
    is_burst = _is_burst(least)
    seconds = (F.unix_micros("lastSeen") - F.unix_micros("firstSeen")) / _SECOND_US
    summed = found.groupBy(*_KINDS).agg(
        F.sum("errors").alias("errors"),
        F.min("firstSeen").alias("firstSeen"),
        F.max("lastSeen").alias("lastSeen"),
        F.count_if(is_burst).alias("bursts"),
        F.max(F.when(is_burst, F.col("errors"))).alias("largestBurst"),
        F.max(F.when(is_burst, seconds)).alias("longestBurstS"),
        F.max("peakPerSecond").alias("peakPerSecond"),
    )
    of_client = requests.groupBy("clientId").agg(F.sum("requests").alias("requests"))
    # A client without an id is a client too: nulls are equal here.
    joined = summed.join(of_client, summed.clientId.eqNullSafe(of_client.clientId))
    share = (F.col("errors") / F.col("requests")).alias("shareOfClient")
    measures = ("firstSeen", "lastSeen", "bursts", "largestBurst", "longestBurstS", "peakPerSecond")
    kinds = (summed[name] for name in _KINDS)
    return joined.select(*kinds, "errors", share, *measures).orderBy(F.desc("errors"), *(summed[n] for n in _KINDS))


def _is_burst(least: int) -> Column:
    return (F.col("errors") >= least) & F.col("peakPerSecond").isNotNull()


def answer(context: Context) -> Result:
    """Return the errors of a range."""
    options = context.options
    coverage = context.rollups.coverage(context.time_range)
    requests, _ = context.rollups.read(context.time_range)
    hours = coverage.deleted.hours
    rows = context.log.read("requests", context.time_range, (*COLUMNS, *PARTITION_COLUMNS)).where(~is_one_of(hours))
    found = runs(rows, options.burst_gap)
    if hours:
        found = found.unionByName(hourly_errors(requests.where(is_one_of(hours))))
    found = found.cache()
    table = transform(found, requests, options.burst_errors).cache()
    largest = bursts(found, options.burst_errors).limit(_MOST_BURSTS).cache()
    total = table.agg(F.sum("errors").alias("errors"), F.sum("bursts").alias("bursts")).first()
    errors = total.errors or 0 if total else 0
    headline = _headline(coverage, errors, table.first(), largest.first())
    facts = {
        "errors": errors,
        "share": errors / coverage.requests,
        "bursts": total.bursts or 0 if total else 0,
        "burstGapUs": options.burst_gap,
        "burstErrors": options.burst_errors,
    }
    return Result(headline, {"errors": table, "bursts": largest}, coverage, facts=facts, lacking=_LACKING)


def _headline(coverage: Coverage, errors: int, most: Row | None, burst: Row | None) -> str:
    if most is None:
        return f"none of {counted(coverage.requests, 'request')} failed"
    parts = [
        f"{errors:,} of {counted(coverage.requests, 'request')} failed ({errors / coverage.requests:.2%})",
        f"most: {_named(most)}, {counted(most.errors, 'time')}, {most.shareOfClient:.1%} of this client's requests",
    ]
    if burst is not None:
        when = f"{burst.errors:,} in {burst.seconds:,.1f} s from {cell(burst.firstSeen)}"
        parts.append(
            f"largest burst: {when}" if _kind(burst) == _kind(most) else f"largest burst: {_named(burst)}, {when}"
        )
    return "; ".join(parts)


def _kind(row: Row) -> Sequence[object]:
    return [row[name] for name in _KINDS]


def _named(row: Row) -> str:
    return f"{row.requestApiKeyName} {cell(row.errorName)} of client {cell(row.clientId)}"


def _add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--burst-gap", type=length_us, default="10s", metavar="TIME", help="longest pause within a burst (10s)"
    )
    parser.add_argument("--burst-errors", type=positive, default="5", metavar="N", help="fewest errors of a burst (5)")


JOB = Job("errors", __doc__ or "", answer, _add_options)

if __name__ == "__main__":
    sys.exit(main(JOB))
