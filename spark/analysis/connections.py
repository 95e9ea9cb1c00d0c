"""The lifetimes of connections: one row each, from the log's open and close events in a range.

Pure transforms. A close event describes a whole lifetime. An open event without a close event is a connection that is
still open, or one lost with a killed process: a later process opens the same name again. Their requests are counted in
the rows of requests. Connections opened before the range and still open have no event and are not included.
"""

from __future__ import annotations

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F  # noqa: N812 - the field's name for it

#: Columns that the transforms read of the datasets connections and requests.
EVENT_COLUMNS = (
    "time",
    "event",
    "connection",
    "clientId",
    "softwareName",
    "softwareVersion",
    "address",
    "cause",
    "durationUs",
    "requests",
)
REQUEST_COLUMNS = ("time", "connection", "clientId", "softwareName", "softwareVersion", "sampleWeight")
_NAMES = ("clientId", "softwareName", "softwareVersion")
_COLUMNS = ("connection", "address", *_NAMES, "openedUs", "state", "seconds", "cause", "requests")
_SECOND_US = 1_000_000


def lives(events: DataFrame, requests: DataFrame, end_us: int) -> DataFrame:
    """Return a row for each connection: `state` is closed, open or lost; `seconds` is its lifetime, null when lost."""
    us = F.unix_micros("time").alias("us")
    in_order = Window.partitionBy("connection").orderBy("us", F.desc("event"))
    timed = events.select(us, *EVENT_COLUMNS[1:])
    ordered = timed.select(
        "*", F.lead("event").over(in_order).alias("nextEvent"), F.lead("us").over(in_order).alias("nextUs")
    )
    is_close, is_unclosed = F.col("event") == "close", ~F.col("nextEvent").eqNullSafe("close")
    closed = ordered.where(is_close).select(
        "connection",
        "address",
        *_NAMES,
        (F.col("us") - F.col("durationUs")).alias("openedUs"),
        F.lit("closed").alias("state"),
        (F.col("durationUs") / _SECOND_US).alias("seconds"),
        "cause",
        "requests",
    )
    return closed.unionByName(_with_requests(ordered.where(~is_close & is_unclosed), requests, end_us))


def _with_requests(unclosed: DataFrame, requests: DataFrame, end_us: int) -> DataFrame:
    opened = unclosed.select("connection", "address", F.col("us").alias("openedUs"), "nextUs")
    made = requests.select(F.unix_micros("time").alias("us"), *REQUEST_COLUMNS[1:])
    is_of_it = (
        (opened["connection"] == made["connection"])
        & (made["us"] >= opened["openedUs"])
        & (made["us"] < F.coalesce(opened["nextUs"], F.lit(end_us)))
    )
    used = (
        made.join(F.broadcast(opened), is_of_it)
        .groupBy(opened["connection"], "openedUs")
        .agg(*(F.max(name).alias(name) for name in _NAMES), F.sum("sampleWeight").alias("requests"))
    )
    is_lost = F.col("nextUs").isNotNull()
    seconds = F.when(~is_lost, (F.lit(end_us) - F.col("openedUs")) / _SECOND_US)
    all_of_them = opened.join(used, ["connection", "openedUs"], "left")
    completed = all_of_them.select(
        *("connection", "address", *_NAMES, "openedUs"),
        F.when(is_lost, "lost").otherwise("open").alias("state"),
        seconds.alias("seconds"),
        F.lit(None).cast("string").alias("cause"),
        F.coalesce("requests", F.lit(0)).alias("requests"),
    )
    return completed.select(*_COLUMNS)


def is_idle(after_us: int, requests_a_minute: int) -> Column:
    """Return whether a connection was open for at least this time, with fewer requests per minute than the bound."""
    few = F.col("requests") * 60 < requests_a_minute * F.col("seconds")
    return F.coalesce((F.col("seconds") >= after_us / _SECOND_US) & few, F.lit(False))


def is_short_lived(within_us: int) -> Column:
    """Return whether a connection was closed before this time had passed."""
    return F.coalesce((F.col("state") == "closed") & (F.col("seconds") < within_us / _SECOND_US), F.lit(False))


def by_client(lived: DataFrame, idle: Column, short_lived: Column, loop_a_minute: int) -> DataFrame:
    """Return connections by client and address: number, kinds, most in one minute, and causes of their ends."""
    minute = F.floor(F.col("openedUs") / (60 * _SECOND_US))
    judged = lived.select("*", minute.alias("minute"), idle.alias("idle"), short_lived.alias("short"))
    who = ("clientId", "address")
    counted = judged.groupBy(*who, "minute", "cause").agg(
        F.count("*").alias("connections"),
        F.count_if(F.col("state") == "open").alias("open"),
        F.count_if(F.col("state") == "lost").alias("lost"),
        F.count_if("idle").alias("idle"),
        F.count_if("short").alias("shortLived"),
        F.sum("requests").alias("requests"),
    )
    here = F.sum("connections")
    placed = counted.select(
        "*",
        here.over(Window.partitionBy(*who, "minute")).alias("inMinute"),
        here.over(Window.partitionBy(*who, "cause")).alias("ofCause"),
    )
    cause = F.when(F.col("cause").isNotNull(), F.struct(-F.col("ofCause"), F.concat_ws(" ", "cause", "ofCause")))
    sums = ("connections", "open", "lost", "idle", "shortLived", "requests")
    summed = placed.groupBy(*who).agg(
        *(F.sum(name).alias(name) for name in sums),
        F.max("inMinute").alias("mostInMinute"),
        F.array_sort(F.collect_set(cause)).alias("causes"),
    )
    looping = F.col("mostInMinute") > loop_a_minute
    causes = F.array_join(F.transform("causes", lambda each: each["col2"]), ", ")
    table = summed.select(*who, *sums, "mostInMinute", looping.alias("looping"), causes.alias("causes"))
    return table.orderBy(F.desc("looping"), F.desc("connections"), *who)
