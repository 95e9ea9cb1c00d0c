"""The traffic report: requests, bytes and records by topic, partition and client, with skew and batch sizes."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence

from pyspark.sql import Column, DataFrame, Row, Window
from pyspark.sql import functions as F  # noqa: N812 - the field's name for it

from rotunda.broker.text_table import counted
from rotunda.spark.analysis import batching
from rotunda.spark.analysis.skew import skew
from rotunda.spark.bounded import rows_of
from rotunda.spark.job import Context, Job, main
from rotunda.spark.log.request_log import is_one_of
from rotunda.spark.log.schema import PARTITION_COLUMNS
from rotunda.spark.options import several
from rotunda.spark.results.charts import Chart, Series
from rotunda.spark.results.result import Result
from rotunda.spark.results.text_table import cell

COLUMNS = (
    "requestApiKeyName",
    "clientId",
    "topic",
    "partition",
    "partitionCount",
    "records",
    "requestBytes",
    "responseBytes",
    "sampleWeight",
)
_SUMS = ("requests", "bytesIn", "bytesOut", "recordsIn", "recordsOut", "severalPartitions")
_IS_PRODUCE, _IS_FETCH = (f"requestApiKeyName = '{name}'" for name in ("PRODUCE", "FETCH"))
_BARS = 12
#: Limits of the result where rows have been deleted.
_LACKING = (
    "topics and clients are from the hourly tables there; severalPartitions, partitions, skew, batches and savings "
    "only as far as rows are left"
)


def flows(rows: DataFrame) -> DataFrame:
    """Return the traffic of each client, sent (In) and received (Out), by partition, as far as requests name one."""
    weight = F.col("sampleWeight").cast("long")

    def total(value: Column, condition: Column | None = None) -> Column:
        counted = value if condition is None else F.when(condition, value)
        return F.coalesce(F.sum(counted * weight), F.lit(0).cast("long"))

    sums = (
        total(F.lit(1)),
        total(F.col("requestBytes")),
        total(F.col("responseBytes")),
        total(F.col("records"), F.expr(_IS_PRODUCE)),
        total(F.col("records"), F.expr(_IS_FETCH)),
        total(F.lit(1), F.col("partitionCount") > 1),
    )
    named = [column.alias(name) for column, name in zip(sums, _SUMS, strict=True)]
    return rows.groupBy("topic", "partition", "clientId").agg(*named)


def hourly_flows(table: DataFrame) -> DataFrame:
    """Return flows from rows of the hourly table, which has no partitions."""

    def total(name: str, api: str | None = None) -> Column:
        counted = F.col(name) if api is None else F.when(F.col("requestApiKeyName") == api, F.col(name))
        return F.coalesce(F.sum(counted), F.lit(0).cast("long"))

    sums = {
        "requests": total("requests"),
        "bytesIn": total("requestBytes"),
        "bytesOut": total("responseBytes"),
        "recordsIn": total("records", "PRODUCE"),
        "recordsOut": total("records", "FETCH"),
    }
    summed = table.groupBy("topic", "clientId").agg(*(column.alias(name) for name, column in sums.items()))
    unknown = {"partition": F.lit(None).cast("int"), "severalPartitions": F.lit(None).cast("long")}
    return summed.withColumns(unknown).select("topic", "partition", "clientId", *_SUMS)


def transform(flowing: DataFrame, by: Sequence[str]) -> DataFrame:
    """Return the sums of flows by some columns with the share of all bytes, most bytes first."""
    summed = flowing.groupBy(*by).agg(*(F.sum(name).alias(name) for name in _SUMS))
    both = F.col("bytesIn") + F.col("bytesOut")
    share = (both / F.sum(both).over(Window.partitionBy())).alias("share")
    return summed.select(*by, *_SUMS, share).orderBy(F.desc(both), *by)


def skews(flowing: DataFrame) -> DataFrame:
    """Return how unevenly bytes lie on all partitions, on those of each topic, and on clients."""
    both = (F.col("bytesIn") + F.col("bytesOut")).alias("bytes")
    name = F.concat_ws("-", "topic", "partition").alias("member")
    partitions = flowing.where(F.col("partition").isNotNull())
    nothing = F.lit(None).cast("string").alias("topic")
    members = (
        partitions.select(F.lit("all partitions").alias("of"), nothing, name, both)
        .unionByName(partitions.select(F.lit("partitions of a topic").alias("of"), "topic", name, both))
        .unionByName(flowing.select(F.lit("clients").alias("of"), nothing, F.col("clientId").alias("member"), both))
    )
    shares = members.groupBy("of", "topic", "member").agg(F.sum("bytes").alias("bytes"))
    return skew(shares, ("of", "topic")).orderBy("of", F.desc("bytes"), "topic")


def answer(context: Context) -> Result:
    """Return the traffic of a range."""
    options = context.options
    coverage = context.rollups.coverage(context.time_range)
    flowing = flows(context.log.read("requests", context.time_range, COLUMNS)).cache()
    everything = _with_deleted(context, flowing, coverage.deleted.hours)
    produces = context.log.read("requests", context.time_range, ("requestApiKeyName", *batching.COLUMNS))
    produces = produces.where(F.expr(_IS_PRODUCE))
    partitions = transform(flowing.where(F.col("partition").isNotNull()), ("topic", "partition")).cache()
    uneven, saved = skews(flowing).cache(), batching.savings(produces, options.linger_ms, options.batch_bytes).cache()
    tables = {
        "topics": transform(everything, ("topic",)),
        "partitions": partitions,
        "clients": transform(everything, ("clientId",)),
        "skew": uneven,
        "batches": batching.batch_sizes(produces),
        "savings": saved,
    }
    sums = everything.agg(*(F.sum(name).alias(name) for name in _SUMS)).first()
    hot = uneven.where("of = 'all partitions'").first()
    merged = saved.groupBy("lingerMs", "batchBytes").agg(F.sum("requests"), F.sum("requestsThen"))
    outcomes = [tuple(row) for row in rows_of(merged.orderBy("lingerMs", "batchBytes"))]
    names = ("lingerMs", "batchBytes", "requests", "requestsThen")
    facts = {
        "gini": hot and hot.gini,
        "hottest": hot and hot.hottest,
        "hottestShare": hot and hot.hottestShare,
        "requestsOfSeveralPartitions": sums and sums.severalPartitions,
        "savings": [dict(zip(names, outcome, strict=True)) for outcome in outcomes],
    }
    chart = _chart(partitions.take(_BARS))
    return Result(_headline(sums, hot, outcomes), tables, coverage, chart, facts, _LACKING)


def _with_deleted(context: Context, flowing: DataFrame, hours: Sequence[int]) -> DataFrame:
    """Return flows with those of the hourly tables for hours with deleted rows."""
    if not hours:
        return flowing
    rows = context.log.read("requests", context.time_range, (*COLUMNS, *PARTITION_COLUMNS))
    table, _ = context.rollups.read(context.time_range)
    stored = hourly_flows(table.where(is_one_of(hours)))
    return flows(rows.where(~is_one_of(hours))).unionByName(stored).cache()


def _headline(sums: Row | None, hot: Row | None, outcomes: Sequence[tuple[int, ...]]) -> str:
    assert sums is not None  # noqa: S101 - an aggregate of everything has one row
    parts = [f"{counted(sums.requests, 'request')}, {sums.bytesIn / 1e6:,.1f} MB in, {sums.bytesOut / 1e6:,.1f} MB out"]
    if hot is not None and hot.gini is not None:
        parts.append(f"{cell(hot.hottest)} carries {hot.hottestShare:.0%} of the traffic of partitions")
    if outcomes:
        linger, size, now, then = max(outcomes, key=lambda outcome: outcome[2] - outcome[3])
        saving = f"{1 - then / now:.0%} of the Produce requests"
        parts.append(f"a linger of {linger} ms and batches of {counted(size, 'byte')} would save {saving}")
    return "; ".join(parts)


def _chart(rows: Sequence[Row]) -> Chart:
    labels = [f"{row.topic}-{row.partition}" for row in rows]
    series = [Series("sent to it", [row.bytesIn for row in rows]), Series("read", [row.bytesOut for row in rows])]
    return Chart("Bytes by partition: the hottest", "bars", labels, series, "bytes")


def _add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--linger-ms", type=several, default="5,20,100", metavar="N,N", help="lingers to try, in ms (5,20,100)"
    )
    parser.add_argument(
        "--batch-bytes",
        type=several,
        default="16384,131072,1000000",
        metavar="N,N",
        help="batch sizes to try (16384,131072,1000000)",
    )


JOB = Job("traffic", __doc__ or "", answer, _add_options)

if __name__ == "__main__":
    sys.exit(main(JOB))
