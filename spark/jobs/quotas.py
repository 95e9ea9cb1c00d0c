"""The clients that a quota would have throttled, when and for how long, if it had been set.

Quotas on produce and fetch bytes, request time, new connections and changes of partitions, measured in Kafka's way.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Mapping, Sequence
from functools import reduce
from typing import Final

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812 - the field's name for it

from rotunda.spark.analysis.quota_charges import (
    CONNECTION,
    CONNECTION_COLUMNS,
    FETCH,
    MUTATION,
    PRODUCE,
    REQUEST,
    REQUEST_COLUMNS,
    connection_charges,
    mutation_charges,
    request_charges,
)
from rotunda.spark.analysis.quota_windows import SAMPLES, measured, muted_s, with_late, with_throttle
from rotunda.spark.bounded import rows_of
from rotunda.spark.failures import JobFailed
from rotunda.spark.job import Context, Job, main
from rotunda.spark.results.charts import Chart, Series
from rotunda.spark.results.result import Result
from rotunda.spark.results.text_table import cell
from rotunda.spark.time_range import TimeRange, to_datetime

#: Entities of a quota, and the columns of each.
ENTITIES: Final = {
    "client": ("clientId",),
    "client+topic": ("clientId", "topic"),
    "address": ("address",),
    "principal": ("principal",),
}
#: All quotas on requests together: of simultaneous violations, the longest throttle holds (`E14`).
ANY: Final = "any"
_UNITS: Final = {
    PRODUCE: "bytes/s",
    FETCH: "bytes/s",
    REQUEST: "% of a thread",
    CONNECTION: "connections/s",
    MUTATION: "partitions/s",
}
#: Longest single throttle: a window for request time (`E13`), a second for connections (`A12`).
LONGEST_S: Final = {REQUEST: 1.0, CONNECTION: 1.0}

_US: Final = 1_000_000
_US_OF_PERCENT: Final = 10_000
_STEPS: Final = 60


def throttles(charges: DataFrame, bounds: Mapping[str, float], entity: Sequence[str]) -> DataFrame:
    """Return each charged second with its measured rate, and the length of the throttle it would have caused."""
    keys = ["quota", *entity]
    rates = measured(charges, keys)
    # Microseconds per second as percent of that second.
    percent = F.when(F.col("quota") == REQUEST, F.col("rate") / _US_OF_PERCENT).otherwise(F.col("rate"))
    found = with_throttle(rates.withColumn("rate", percent), bounds, LONGEST_S)
    throttle = F.col("throttleS")
    if FETCH in bounds:
        found = with_late(found, keys)
        # Less than a byte is rounding error.
        late = F.when(F.col("late") >= 1, F.col("late") / F.col("bound")).otherwise(F.lit(0.0))
        throttle = F.when(F.col("quota") == FETCH, late).otherwise(throttle)
    if MUTATION in bounds:
        throttle = F.when(F.col("quota") == MUTATION, F.col("bucketS")).otherwise(throttle)
    return found.withColumn("throttleS", throttle)


def with_any(seconds: DataFrame, entity: Sequence[str]) -> DataFrame:
    """Add rows of the quota `any`: the longest of a second's throttles on requests (`E14`), if there is one."""
    on_requests = seconds.where((F.col("quota") != CONNECTION) & (F.col("throttleS") > 0))
    longest = on_requests.groupBy(*entity, "second").agg(F.max("throttleS").alias("throttleS"))
    return seconds.unionByName(longest.withColumn("quota", F.lit(ANY)), allowMissingColumns=True)


def transform(seconds: DataFrame, entity: Sequence[str]) -> DataFrame:
    """Return one row for each quota and entity, the longest throttled first; `seconds` are those of `throttles`."""
    keys = ["quota", *entity]
    is_over = F.col("throttleS") > 0
    covered = seconds.withColumn("muted", muted_s(keys))
    summed = covered.groupBy(*keys).agg(
        F.sum(is_over.cast("long")).alias("secondsOver"),
        F.sum("muted").alias("throttledS"),
        F.max("throttleS").alias("longestThrottleS"),
        F.sum("throttleS").alias("totalThrottleS"),
        F.max("rate").alias("highestRate"),
        F.max("bound").alias("bound"),
        _time(F.min(F.when(is_over, F.col("second")))).alias("firstOver"),
        _time(F.max(F.when(is_over, F.col("second")))).alias("lastOver"),
        F.sum(F.when(is_over, F.col("requests"))).alias("requestsOver"),
        F.sum("requests").alias("requests"),
    )
    return summed.orderBy(F.desc("throttledS"), F.desc("highestRate"), *keys)


def timeline(seconds: DataFrame, entity: Sequence[str], step_s: int) -> DataFrame:
    """Return, for each quota and step of time, the number of entities over it and of seconds over it."""
    over = seconds.where(F.col("throttleS") > 0)
    step = F.floor(F.col("second") / step_s) * step_s
    stepped = over.groupBy("quota", step.cast("long").alias("step")).agg(
        F.count_distinct(F.struct(*entity)).alias("entities"),
        F.count("*").alias("secondsOver"),
        F.max("throttleS").alias("longestThrottleS"),
    )
    return stepped.select(
        "quota", _time(F.col("step")).alias("time"), "entities", "secondsOver", "longestThrottleS"
    ).orderBy("time", "quota")


#: Limits of the result where rows have been deleted.
_LACKING: Final = "charges of that time are partly missing"


#: Quotas where none is named: bytes a second, and percent of one thread.
_DEFAULT_BOUNDS: Final = {PRODUCE: 10_000_000.0, FETCH: 10_000_000.0, REQUEST: 100.0}


def answer(context: Context) -> Result:
    """Return the clients that the quotas of the command line would have throttled in a range."""
    bounds = _bounds(context.options)
    by = ENTITIES[context.options.per]
    entity = [*by, *(["address"] if CONNECTION in bounds and "address" not in by else [])]
    seconds = _seconds(context, bounds, by, entity).cache()
    coverage = context.rollups.coverage_of_rows(context.time_range)
    table = transform(seconds, entity).cache()
    step_s = context.time_range.step_s(_STEPS)
    steps = timeline(seconds, entity, step_s)
    told = table.where(F.col("quota") != ANY)
    counted = told.agg(F.sum((F.col("secondsOver") > 0).cast("long")).alias("over"), F.count("*").alias("of")).first()
    assert counted is not None  # noqa: S101 - an aggregate of everything has one row
    worst = told.first()
    headline = "no client would have been throttled"
    if worst is not None and worst.secondsOver:
        name = ", ".join(cell(worst[column]) for column in entity if worst[column] is not None)
        headline = (
            f"{counted['over']} of {counted['of']} would have been throttled; {name or '(no name)'} most: "
            f"{worst.throttledS:,.1f} s by the {worst.quota} quota of {worst.bound:,.10g} {_UNITS[worst.quota]} "
            f"(highest rate {worst.highestRate:,.1f})"
        )
    facts = {"bounds": dict(bounds), "per": context.options.per, "stepS": step_s, "over": counted["over"]}
    chart = _chart(steps, context.time_range, step_s, list(bounds))
    return Result(headline, {"quotas": table, "timeline": steps}, coverage, chart, facts, lacking=_LACKING)


def _seconds(context: Context, bounds: Mapping[str, float], by: Sequence[str], entity: Sequence[str]) -> DataFrame:
    """Return the charged seconds of the range, their rates with the samples from before it."""
    asked = context.time_range
    earlier = TimeRange(asked.start_us - SAMPLES * _US, asked.end_us)
    charges = []
    on_requests = [name for name in (PRODUCE, FETCH, REQUEST) if name in bounds]
    rows = context.log.read("requests", earlier, REQUEST_COLUMNS)
    if on_requests:
        charges.append(request_charges(rows, on_requests, by))
    if MUTATION in bounds:
        on_requests.append(MUTATION)
        charges.append(mutation_charges(rows, by, bounds[MUTATION]))
    if CONNECTION in bounds:
        rows = context.log.read("connections", earlier, CONNECTION_COLUMNS)
        charges.append(connection_charges(rows))
    together = reduce(lambda one, other: one.unionByName(other, allowMissingColumns=True), charges)
    found = throttles(together, bounds, entity)
    in_range = (F.col("second") >= asked.start_us // _US) & (F.col("second") <= (asked.end_us - 1) // _US)
    found = found.where(in_range)
    return with_any(found, entity) if len(on_requests) > 1 else found


def _bounds(options: argparse.Namespace) -> dict[str, float]:
    given = {
        PRODUCE: options.produce_bytes_per_second,
        FETCH: options.fetch_bytes_per_second,
        REQUEST: options.request_percentage,
        CONNECTION: options.connections_per_second,
        MUTATION: options.mutations_per_second,
    }
    bounds = {name: value for name, value in given.items() if value is not None} or _DEFAULT_BOUNDS
    for name, value in bounds.items():
        if not 0 < value < float("inf"):
            raise JobFailed(f"the {name} quota must be greater than 0, not {value:g}")
    return bounds


def _chart(steps: DataFrame, time_range: TimeRange, step_s: int, quotas: Sequence[str]) -> Chart:
    found = {(row.quota, int(row.time.timestamp())): row.secondsOver for row in rows_of(steps)}
    starts = range(time_range.start_us // _US // step_s * step_s, -(-time_range.end_us // _US), step_s)
    labels = [f"{to_datetime(start * _US):%m-%d %H:%M:%S}" for start in starts]
    series = [Series(name, [float(found.get((name, start), 0)) for start in starts]) for name in quotas]
    return Chart(f"Seconds over the quota, in steps of {step_s} s", "bars", labels, series, "s, all entities")


def _time(second: Column) -> Column:
    return F.timestamp_seconds(second)


def _add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--produce-bytes-per-second", type=float, metavar="N", help="a producer_byte_rate to try")
    parser.add_argument("--fetch-bytes-per-second", type=float, metavar="N", help="a consumer_byte_rate to try")
    parser.add_argument("--request-percentage", type=float, metavar="N", help="a request_percentage: of one thread")
    parser.add_argument(
        "--connections-per-second", type=float, metavar="N", help="a connection_creation_rate, per address"
    )
    parser.add_argument(
        "--mutations-per-second", type=float, metavar="N", help="a controller_mutation_rate: partitions made or deleted"
    )
    parser.add_argument("--per", choices=list(ENTITIES), default="client", help="quota entity (default: client)")


JOB = Job("quotas", __doc__ or "", answer, _add_options)

if __name__ == "__main__":
    sys.exit(main(JOB))
