"""How long requests take and where that time goes: quantiles and the share of each phase, by what the reader asks."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence

from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812 - the field's name for it

from spark.charts import Chart, Series
from spark.histogram import quantiles
from spark.job import Context, Job, main
from spark.result import Result
from spark.rollups import PHASES

#: What rows can be grouped by, and the columns that stand for it.
GROUPINGS = {
    "api": ("requestApiKeyName",),
    "version": ("requestApiKeyName", "requestApiVersion"),
    "client": ("clientId",),
    "listener": ("listener",),
    "hour": ("date", "hour"),
}
QUANTILES = {"p50Us": 0.5, "p95Us": 0.95, "p99Us": 0.99, "p999Us": 0.999}
_SHARES = {phase: f"{phase.removesuffix('TimeUs')}Share" for phase in PHASES if phase != "totalTimeUs"}
#: Name and colour of each phase in the chart, in the order of the phases, as the status page has them.
_TITLES = (("queue", 2), ("handler", 1), ("waiting", 5), ("response queue", 3), ("send", 4))
_BARS = 12


def transform(requests: DataFrame, latencies: DataFrame, by: Sequence[str]) -> DataFrame:
    """Return quantiles of the total time in microseconds and the phases' shares of it, most requests first."""
    keys = requests.select("date", "hour", "key", *(name for name in by if name not in ("date", "hour")))
    totals = latencies.where(F.col("phase") == "totalTimeUs").join(keys, ["date", "hour", "key"])
    found = quantiles(totals, by, QUANTILES, "requests")
    sums = requests.groupBy(*by).agg(F.sum("requests").alias("requests"), *(F.sum(p).alias(p) for p in PHASES))
    shares = [
        F.when(F.col("totalTimeUs") > 0, F.col(phase) / F.col("totalTimeUs")).otherwise(F.lit(0.0)).alias(name)
        for phase, name in _SHARES.items()
    ]
    # A client without an id is a client too: nulls are equal here.
    joined = sums.join(found, [sums[name].eqNullSafe(found[name]) for name in by])
    mean = (F.col("totalTimeUs") / F.col("requests")).alias("meanUs")
    table = joined.select(*(sums[name] for name in by), "requests", mean, *QUANTILES, *shares)
    return table.orderBy(F.desc("requests"), *by)


def answer(context: Context) -> Result:
    """Return the latencies of a range."""
    by = GROUPINGS[context.options.by]
    requests, latencies = context.rollups.read(context.time_range)
    coverage = context.rollups.coverage(context.time_range)
    table = transform(requests, latencies, by).cache()
    rows = table.limit(_BARS).collect()
    worst = max(rows, key=lambda row: row.p99Us)
    labels = [" ".join(str(row[name]) for name in by) for row in rows]
    series = [
        Series(title, [row.meanUs * row[name] for row in rows], colour)
        for name, (title, colour) in zip(_SHARES.values(), _TITLES, strict=True)
    ]
    chart = Chart("Where the mean time of a request goes", "shares", labels, series, "µs")
    slowest = " ".join(str(worst[name]) for name in by)
    headline = f"{coverage.requests:,} requests; slowest is {slowest}: p99 {worst.p99Us / 1000:,.2f} ms"
    return Result(headline, {"latency": table}, coverage, chart)


def _add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--by", choices=list(GROUPINGS), default="api", help="what rows stand for (default: api)")


JOB = Job("latency", __doc__ or "", answer, _add_options)

if __name__ == "__main__":
    sys.exit(main(JOB))
