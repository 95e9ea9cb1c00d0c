"""The clients report: software, API versions that later brokers have dropped, unhealthy connections, pushed metrics.

A connection is idle when it was open for --idle-after with fewer than --idle-requests a minute, and short-lived when it
was closed within --short-lived. A client loops when it opens more than --loop-connections from one address in one
minute of the clock.
"""

from __future__ import annotations

import argparse
import sys

from pyspark.sql import DataFrame, Row
from pyspark.sql import functions as F  # noqa: N812 - the field's name for it

from rotunda.broker.text_table import counted
from rotunda.spark.analysis.connections import EVENT_COLUMNS, REQUEST_COLUMNS, by_client, is_idle, is_short_lived, lives
from rotunda.spark.analysis.pushed_metrics import PUSHED_COLUMNS, by_instance
from rotunda.spark.job import Context, Job, main
from rotunda.spark.options import length_us, positive
from rotunda.spark.results.result import Result
from rotunda.spark.results.text_table import cell

_SOFTWARE = ("softwareName", "softwareVersion", "clientId")
_VERSION = ("requestApiKeyName", "requestApiVersion", *_SOFTWARE)
DEPRECATED_COLUMNS = ("time", "requestApiVersionDeprecated", *_VERSION, "address", "sampleWeight")


def software(requests: DataFrame) -> DataFrame:
    """Return requests and errors by client library and client id, most requests first; `requests` is the rollup."""
    failed = F.sum(F.when(F.col("errorCode") != 0, F.col("requests")).otherwise(F.lit(0)))
    table = requests.groupBy(*_SOFTWARE).agg(
        F.sum("requests").alias("requests"),
        failed.alias("errors"),
        F.min("firstTime").alias("firstSeen"),
        F.max("lastTime").alias("lastSeen"),
    )
    return table.orderBy(F.desc("requests"), *_SOFTWARE)


def versions(requests: DataFrame) -> DataFrame:
    """Return requests by API, version and client; `requests` is the rollup."""
    table = requests.groupBy(*_VERSION).agg(F.sum("requests").alias("requests"))
    return table.orderBy("requestApiKeyName", "requestApiVersion", F.desc("requests"), *_SOFTWARE)


def dropped(rows: DataFrame) -> DataFrame:
    """Return the clients of API versions that later brokers reject, with their number of addresses and last use."""
    old = rows.where(F.col("requestApiVersionDeprecated"))
    table = old.groupBy(*_VERSION).agg(
        F.sum("sampleWeight").alias("requests"),
        F.count_distinct("address").alias("addresses"),
        F.max("time").alias("lastSeen"),
    )
    return table.orderBy(F.desc("requests"), *_VERSION)


#: Limits of the result where rows have been deleted.
_LACKING = "software and versions are from the hourly tables; all else only as far as rows are left"


def answer(context: Context) -> Result:
    """Return the clients of a range."""
    options, time_range, log = context.options, context.time_range, context.log
    coverage = context.rollups.coverage(time_range)
    requests, _ = context.rollups.read(time_range)
    events = log.read("connections", time_range, EVENT_COLUMNS)
    lived = lives(events, log.read("requests", time_range, REQUEST_COLUMNS), time_range.end_us)
    idle = is_idle(options.idle_after, options.idle_requests)
    clients = by_client(lived, idle, is_short_lived(options.short_lived), options.loop_connections)
    tables = {
        "software": software(requests).cache(),
        "versions": versions(requests),
        "dropped": dropped(log.read("requests", time_range, DEPRECATED_COLUMNS)).cache(),
        "connections": clients.cache(),
        "pushed": by_instance(log.read("client_metrics", time_range, PUSHED_COLUMNS)).cache(),
    }
    names = F.count_distinct(F.coalesce("clientId", F.lit(""))).alias("clients")
    libraries = F.count_distinct("softwareName").alias("libraries")
    found = {
        **_first(tables["software"].agg(names, libraries)),
        **_first(tables["dropped"].agg(names.alias("clientsOfDropped"), F.sum("requests").alias("requestsOfDropped"))),
        **_first(
            tables["connections"].agg(
                *(F.sum(name).alias(name) for name in ("connections", "open", "lost", "idle", "shortLived")),
                F.count_if("looping").alias("looping"),
            )
        ),
    }
    counts = {name: value or 0 for name, value in found.items()}
    counts["pushing"] = tables["pushed"].count()
    headline = _headline(counts, tables["connections"].first(), tables["pushed"].first())
    return Result(headline, tables, coverage, facts={**counts}, lacking=_LACKING)


def _first(one: DataFrame) -> dict[str, int]:
    row = one.first()
    return row.asDict() if row else {}


def _headline(counts: dict[str, int], first: Row | None, slowest: Row | None) -> str:
    old = (
        f"{counts['clientsOfDropped']} of them, {counted(counts['requestsOfDropped'], 'request')},"
        if counts["clientsOfDropped"]
        else "none"
    )
    parts = [
        f"{counted(counts['clients'], 'client')} with {counted(counts['libraries'], 'library')}",
        f"{old} with API versions that later brokers have dropped",
        f"{counted(counts['connections'], 'connection')}: {counts['idle']:,} idle, "
        f"{counts['shortLived']:,} short-lived",
    ]
    if first is not None and first.looping:
        rate = f"{cell(first.clientId)} at {cell(first.address)} opened {first.mostInMinute:,} in one minute"
        parts.append(f"{counted(counts['looping'], 'client')} in a loop: {rate}")
    parts.append(_pushed(counts["pushing"], slowest))
    return "; ".join(parts)


def _pushed(clients: int, slowest: Row | None) -> str:
    if slowest is None:
        return "no client pushed metrics"
    of_them = f"{counted(clients, 'client')} pushed metrics"
    if slowest.requestMeanMs is None:
        return of_them
    latency = f"{cell(slowest.requestMeanMs)} ms a request, at most {cell(slowest.requestMaxMs)} ms"
    return f"{of_them}, slowest is {cell(slowest.clientId)} at {cell(slowest.address)}: {latency}"


def _add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--idle-after", type=length_us, default="10m", metavar="TIME", help="idle only if open for so long (10m)"
    )
    parser.add_argument(
        "--idle-requests", type=positive, default="1", metavar="N", help="idle if fewer requests a minute (1)"
    )
    parser.add_argument(
        "--short-lived", type=length_us, default="5s", metavar="TIME", help="short-lived if closed within (5s)"
    )
    parser.add_argument(
        "--loop-connections", type=positive, default="30", metavar="N", help="looping if more in a minute (30)"
    )


JOB = Job("clients", __doc__ or "", answer, _add_options)

if __name__ == "__main__":
    sys.exit(main(JOB))
