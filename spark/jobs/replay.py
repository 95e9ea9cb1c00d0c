"""A load profile of a part of the log, for `rotunda bench`: connections, their requests with sizes, and times."""

from __future__ import annotations

import argparse
import sys
from typing import Final

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F  # noqa: N812 - the field's name for it

from rotunda.broker.text_table import counted
from rotunda.spark.job import Context, Job, main
from rotunda.spark.options import positive
from rotunda.spark.results.result import Result

#: Version of the table `profile`; raised when a reader of the previous one would misread it.
PROFILE_VERSION: Final = 1
OPEN, REQUEST, CLOSE = "open", "request", "close"

REQUEST_COLUMNS: Final = (
    "time", "connection", "correlationId", "clientId", "softwareName", "softwareVersion", "requestApiKey",
    "requestApiKeyName", "requestApiVersion", "topic", "partition", "partitionCount", "records", "recordBytes", "codec",
    "acks", "isolationLevel", "minBytes", "maxWaitMs", "requestBytes", "responseBytes", "totalTimeUs", "sampleWeight",
)  # fmt: skip
CONNECTION_COLUMNS: Final = ("time", "event", "connection", "clientId", "softwareName", "softwareVersion")
#: Columns of each event in a profile, besides its version, time and connection.
_KEPT: Final = (*REQUEST_COLUMNS[3:-1],)
_US: Final = 1_000_000


def transform(requests: DataFrame, connections: DataFrame) -> DataFrame:
    """Return the profile: one row for each open, request and close event, in order of time from 0 on.

    `connection` is a number from 0 on. A name that is opened twice, as by a restarted broker, is two connections.
    `repeat` is the number of requests that a row of a sampled log represents.
    """
    events = _events(requests, connections)
    rank = F.when(F.col("event") == OPEN, 0).when(F.col("event") == REQUEST, 1).otherwise(2)
    before = Window.partitionBy("connection").orderBy("timeUs", rank, "correlationId")
    before = before.rowsBetween(Window.unboundedPreceding, Window.currentRow)
    opened = F.sum((F.col("event") == OPEN).cast("long")).over(before)
    # A profile is small enough for one task to number it.
    number = F.dense_rank().over(Window.orderBy("connection", "opened")) - 1
    since_start = F.col("timeUs") - F.min("timeUs").over(Window.partitionBy())
    return (
        events.withColumn("opened", opened)
        .select(
            F.lit(PROFILE_VERSION).alias("profileVersion"),
            since_start.alias("atUs"),
            "event",
            number.cast("int").alias("connection"),
            *_KEPT,
            "repeat",
            "correlationId",
        )
        .orderBy("atUs", "connection", "correlationId")
        .drop("correlationId")
    )


def _events(requests: DataFrame, connections: DataFrame) -> DataFrame:
    time_us = F.unix_micros("time").alias("timeUs")
    asked = requests.select(
        time_us,
        F.lit(REQUEST).alias("event"),
        "connection",
        "correlationId",
        *_KEPT,
        F.col("sampleWeight").alias("repeat"),
    )
    others = connections.select(time_us, "event", *CONNECTION_COLUMNS[2:], F.lit(1).alias("repeat"))
    return asked.unionByName(others, allowMissingColumns=True)


def by_api(profile: DataFrame) -> DataFrame:
    """Return the totals of each API in the profile: requests and their bytes, with repeated rows multiplied."""
    requests = profile.where(F.col("event") == REQUEST)
    counted = requests.groupBy("requestApiKeyName", "requestApiVersion").agg(
        F.sum("repeat").alias("requests"),
        *(_sum(name) for name in ("requestBytes", "responseBytes", "records", "recordBytes")),
    )
    return counted.orderBy(F.desc("requests"), "requestApiKeyName", "requestApiVersion")


def _sum(name: str) -> Column:
    return F.sum(F.col(name).cast("long") * F.col("repeat")).alias(name)


#: Limits of the result where rows have been deleted.
_LACKING: Final = "the profile has only the remaining rows"


def answer(context: Context) -> Result:
    """Return the profile of the first requests of a range."""
    coverage = context.rollups.coverage_of_rows(context.time_range)
    most: int = context.options.requests
    rows = context.log.read("requests", context.time_range, REQUEST_COLUMNS)
    chosen = rows.orderBy("time", "connection", "correlationId").limit(most)
    connections = context.log.read("connections", context.time_range, CONNECTION_COLUMNS)
    is_cut = coverage.rows > most
    if is_cut:
        # Connections opened after the last included request belong to another profile.
        last = chosen.agg(F.max("time").alias("last"))
        connections = connections.join(F.broadcast(last), F.col("time") <= F.col("last")).drop("last")
    profile = transform(chosen, connections).cache()
    apis = by_api(profile).cache()
    summed = profile.agg(
        F.max("atUs").alias("us"), F.count_distinct("connection").alias("connections"),
        F.sum((F.col("event") == REQUEST).cast("long")).alias("rows"),
    ).first()  # fmt: skip
    asked = apis.agg(F.sum("requests").alias("requests")).first()
    assert summed is not None  # noqa: S101 - an aggregate of everything has one row
    assert asked is not None  # noqa: S101
    left_out = coverage.rows - summed["rows"]
    length_s = summed.us / _US
    headline = (
        f"{counted(asked.requests, 'request')} of {counted(summed.connections, 'connection')} in {length_s:,.1f} s"
    )
    if left_out:
        headline += f"; the profile ends there: {left_out:,} later rows are beyond --requests {most}"
    facts: dict[str, object] = {
        "profileVersion": PROFILE_VERSION, "lengthS": length_s, "connections": summed.connections,
        "requests": asked.requests, "rowsLeftOut": left_out,
    }  # fmt: skip
    return Result(headline, {"apis": apis, "profile": profile}, coverage, facts=facts, lacking=_LACKING)


def _add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--requests", type=positive, default=100_000, metavar="N", help="rows of the profile: the first N (100000)"
    )


JOB = Job("replay", __doc__ or "", answer, _add_options)

if __name__ == "__main__":
    sys.exit(main(JOB))
