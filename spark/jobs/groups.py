"""The groups report: rebalances, their causes and durations, members, times of lag, deliveries of share groups."""

from __future__ import annotations

import argparse
import sys
from functools import reduce
from typing import Final

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F  # noqa: N812 - the field's name for it

from rotunda.broker.text_table import counted
from rotunda.spark.analysis.lag import Bounds, ages_at, episodes, over_time, spans
from rotunda.spark.bounded import rows_of
from rotunda.spark.job import Context, Job, main
from rotunda.spark.options import length_us, positive
from rotunda.spark.results.charts import Chart, Series
from rotunda.spark.results.result import Result
from rotunda.spark.results.text_table import cell
from rotunda.spark.time_range import TimeRange, to_datetime

#: Counts of the rows `deliveries`.
DELIVERY_COUNTS: Final = (
    "delivered", "redelivered", "accepted", "released", "rejected", "locksExpired", "deadLetters",
)  # fmt: skip
COLUMNS: Final = (
    "time", "group", "member", "event", "reason", "kind", "generation", "members", "durationUs", "topic", "records",
    *DELIVERY_COUNTS,
)  # fmt: skip
#: Events of members, and the column that counts each.
MEMBER_EVENTS: Final = {"join": "joins", "leave": "leaves", "expire": "expirations", "replace": "replacements"}
_ENDS: Final = ("stable", "empty")
_US: Final = 1_000_000
_LONGEST_CAUSE: Final = 200
_BARS: Final = 12
#: Lines of the chart over time, and the most steps of it.
_LINES: Final = 6
_STEPS: Final = 200
_MINUTE_US: Final = 60 * _US
#: Differences between reasons of one kind: ids of members. A client without a reason is left out.
_PARTICULARS: Final = (
    ("; client reason: not provided", ""),
    (r"[^ (),:;]*[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}", "…"),
    (r"\([^)]*\)", "(…)"),
    (r"\b(member|instance id) [^ (),:;]+", "$1 …"),
)
_NO_LAG: Final = (
    "lag and unread time are not known: the log has no rows `lag` here (an older broker, "
    "request.log.roles.interval.ms=0, or no committed offsets)"
)


def rebalances(events: DataFrame) -> DataFrame:
    """Return one row for each rebalance: from its first event to its end.

    `begun` counts how often it was begun or restarted; 0 when it began before the range. Without an end it is
    `unfinished`.
    """
    is_end = F.col("event").isin(*_ENDS)
    is_begin = F.col("event") == "rebalance"
    # Within one millisecond: a rebalance event has the old generation, its end event the new one.
    has_generation = F.col("generation").isNotNull()
    rank = F.when(has_generation, is_begin.cast("int")).otherwise(is_end.cast("int"))
    before = Window.partitionBy("group").orderBy("time", "generation", rank).rowsBetween(Window.unboundedPreceding, -1)
    ended_before = F.coalesce(F.sum(is_end.cast("int")).over(before), F.lit(0))
    numbered = events.where(is_end | is_begin).withColumn("number", ended_before)
    order = F.struct("time", "generation")
    found = numbered.groupBy("group", "number").agg(
        F.max("kind").alias("kind"),
        F.min(F.when(is_begin, F.col("time"))).alias("began"),
        F.max(F.when(is_end, F.col("time"))).alias("end"),
        F.sum(is_begin.cast("long")).alias("begun"),
        F.min_by(F.when(is_begin, F.col("reason")), F.when(is_begin, order)).alias("reason"),
        F.coalesce(F.max(F.when(is_end, F.col("event"))), F.lit("unfinished")).alias("outcome"),
        F.max(F.when(is_end, F.col("generation"))).alias("generation"),
        F.max(F.when(is_end, F.col("members"))).alias("members"),
        F.max(F.when(is_end, F.col("durationUs"))).alias("durationUs"),
    )
    end_us = F.unix_micros("end")
    took = F.coalesce(F.col("durationUs"), end_us - F.unix_micros("began"))
    start = F.coalesce(F.col("began"), F.timestamp_micros(end_us - F.col("durationUs")))
    return found.select(
        "group", "number", "kind", start.alias("start"), "end", cause_of(F.col("reason")).alias("cause"), "begun",
        "outcome", "generation", "members", (took / _US).alias("tookS"),
    )  # fmt: skip


def with_unread(found: DataFrame, held: DataFrame) -> DataFrame:
    """Add `unreadS`: the growth of the oldest unread record's age during a rebalance, in the topic with the largest."""
    moments = [
        found.select("group", "number", F.unix_micros(name).alias("atUs"), F.lit(name).alias("side"))
        for name in ("start", "end")
    ]
    asked = moments[0].unionByName(moments[1]).where(F.col("atUs").isNotNull())
    ages = ages_at(held, asked, ["number", "side"])
    sides = [F.max(F.when(F.col("side") == name, F.col("ageUs"))) for name in ("start", "end")]
    grown = ages.groupBy("group", "number", "topic").agg((sides[1] - sides[0]).alias("grownUs"))
    most = grown.groupBy("group", "number").agg(F.max("grownUs").alias("grownUs"))
    unread = (F.greatest("grownUs", F.lit(0)) / _US).alias("unreadS")
    joined = found.join(
        most.withColumn("unreadS", F.when(F.col("grownUs").isNotNull(), unread)), ["group", "number"], "left"
    )
    return joined.drop("grownUs")


def cause_of(reason: Column) -> Column:
    """Return a reason without the parts that differ between members."""
    return F.substring(
        reduce(lambda text, pair: F.regexp_replace(text, *pair), _PARTICULARS, reason), 1, _LONGEST_CAUSE
    )


def causes(found: DataFrame) -> DataFrame:
    """Return, for each group and cause, the number of rebalances and their cost, most time first."""
    counted = found.groupBy("group", "cause").agg(F.count("*").alias("rebalances"), *_costs())
    return counted.orderBy(F.desc_nulls_last("rebalancingS"), F.desc("rebalances"), "group", "cause")


def comings(events: DataFrame) -> DataFrame:
    """Return, for each group, the events of members and their causes: how often, how many members, first and last."""
    of_members = events.where(F.col("event").isin(*MEMBER_EVENTS)).withColumn("cause", cause_of(F.col("reason")))
    counted = of_members.groupBy("group", "event", "cause").agg(
        F.count("*").alias("times"),
        F.count_distinct("member").alias("members"),
        F.min("time").alias("first"),
        F.max("time").alias("last"),
    )
    return counted.orderBy(F.desc("times"), "group", "event", "cause")


def transform(events: DataFrame, found: DataFrame, behind: DataFrame) -> DataFrame:
    """Return one row for each group: rebalances, joins and leaves of members, and times of lag."""
    of_group = events.groupBy("group").agg(
        F.max("kind").alias("kind"),
        F.max_by("members", F.when(F.col("members").isNotNull(), F.col("time"))).alias("members"),
        *(F.sum((F.col("event") == name).cast("long")).alias(column) for name, column in MEMBER_EVENTS.items()),
    )
    costs = found.groupBy("group").agg(
        F.count("*").alias("rebalances"),
        F.sum((F.col("outcome") == "unfinished").cast("long")).alias("unfinished"),
        *_costs(),
    )
    lagging = behind.groupBy("group").agg(
        F.count("*").alias("episodes"),
        F.sum("lengthS").alias("behindS"),
        F.max("peakRecords").alias("peakRecords"),
        F.max("peakAgeS").alias("peakAgeS"),
    )
    joined = of_group.join(costs, "group", "left").join(lagging, "group", "left")
    counts = ("rebalances", "unfinished", "episodes")
    return (
        joined.fillna(0, list(counts))
        .select(
            "group", "kind", "members", "rebalances", "unfinished", "rebalancingS", "longestS", "unreadS",
            *MEMBER_EVENTS.values(), "episodes", "behindS", "peakRecords", "peakAgeS",
        )
        .orderBy(F.desc_nulls_last("rebalancingS"), F.desc_nulls_last("behindS"), "group")
    )  # fmt: skip


def shares(deliveries: DataFrame, lag: DataFrame) -> DataFrame:
    """Return one row for each share group: its deliveries, and its last and largest lag; most redeliveries first."""
    counts = deliveries.groupBy("group").agg(*(F.sum(name).alias(name) for name in DELIVERY_COUNTS))
    by_topic = (
        lag.where("kind = 'share'")
        .groupBy("group", "topic")
        .agg(F.max_by("records", "time").alias("records"), F.max("records").alias("peakRecords"))
    )
    lags = by_topic.groupBy("group").agg(F.sum("records").alias("lag"), F.sum("peakRecords").alias("peakLag"))
    share = F.try_divide(F.col("redelivered"), F.col("delivered")).alias("redeliveredShare")
    return (
        counts.join(lags, "group", "full")
        .select("group", *DELIVERY_COUNTS[:2], share, *DELIVERY_COUNTS[2:], "lag", "peakLag")
        .orderBy(F.desc_nulls_last("redelivered"), F.desc_nulls_last("delivered"), "group")
    )


def _costs() -> list[Column]:
    return [
        F.sum("tookS").alias("rebalancingS"),
        F.max("tookS").alias("longestS"),
        F.sum("unreadS").alias("unreadS"),
    ]


#: Limits of the result where rows have been deleted.
_LACKING: Final = "group activity of that time is partly missing"


def answer(context: Context) -> Result:
    """Return the group activity of a range."""
    options = context.options
    bounds = Bounds(options.lag_records, options.lag_age, options.lasting)
    coverage = context.rollups.coverage_of_rows(context.time_range)
    rows = context.log.read("groups", context.time_range, COLUMNS).cache()
    is_lag, is_deliveries = F.col("event") == "lag", F.col("event") == "deliveries"
    events, lag = rows.where(~(is_lag | is_deliveries)), rows.where(is_lag)
    of_shares = shares(rows.where(is_deliveries), lag).cache()
    end_us = _end_us(context, rows)
    held = spans(lag, end_us).cache()
    found = with_unread(rebalances(events), held).cache()
    behind = episodes(held, bounds, end_us).orderBy(F.desc("lengthS"), "group", "start").cache()
    table = transform(events, found, behind).cache()
    of_causes = causes(found).cache()
    has_lag = bool(held.take(1))
    facts: dict[str, object] = {
        "hasLag": has_lag,
        "lagRecords": bounds.records,
        "lagAgeS": bounds.age_us / _US,
        "forS": bounds.for_us / _US,
    }
    tables = {
        "groups": table, "causes": of_causes, "rebalances": found.drop("number").orderBy("group", "start"),
        "members": comings(events), "episodes": behind, "shares": of_shares,
    }  # fmt: skip
    chart = _lag_chart(held, context.time_range, end_us) if has_lag else _chart(of_causes)
    headline = _headline(table, behind, has_lag=has_lag) + _of_shares(of_shares)
    return Result(headline, tables, coverage, chart, facts, lacking=_LACKING)


def _end_us(context: Context, rows: DataFrame) -> int:
    """Return when the last state in the log ends: at the end of the range, or of the log if that is earlier."""
    last = [
        each.agg(F.max(F.unix_micros("time")).alias("us")).first()
        for each in (rows, *(context.log.read(name, context.time_range, ["time"]) for name in ("requests", "roles")))
    ]
    known = [row.us for row in last if row is not None and row.us is not None]
    return min([context.time_range.end_us, max(known, default=context.time_range.end_us) + 1])


def _headline(table: DataFrame, behind: DataFrame, *, has_lag: bool) -> str:
    summed = table.agg(
        F.count("*").alias("groups"), F.sum("rebalances").alias("rebalances"), F.sum("rebalancingS").alias("tookS")
    ).first()
    assert summed is not None  # noqa: S101 - an aggregate of everything has one row
    if not summed.groups:
        return "no group did anything"
    counts = f"{counted(summed.groups, 'group')}, {counted(summed.rebalances, 'rebalance')}"
    text = f"{counts} of {summed.tookS or 0:,.1f} s together"
    longest = behind.first()
    if longest is not None:
        age = "" if longest.peakAgeS is None else f", {longest.peakAgeS:,.0f} s old"
        text += f"; {cell(longest.group)} was behind for {longest.lengthS:,.0f} s: "
        text += f"up to {counted(longest.peakRecords, 'record')}{age}"
    elif has_lag:
        text += "; no group was behind for long"
    return text if has_lag else f"{text}; {_NO_LAG}"


def _lag_chart(held: DataFrame, time_range: TimeRange, end_us: int) -> Chart:
    """Return the lag of the groups with the largest one over time."""
    step_us = time_range.step_s(_STEPS) * _US
    start_us = time_range.start_us // step_us * step_us
    steps = -(-(end_us - start_us) // step_us)
    largest = over_time(held, start_us, step_us).cache()
    peaks = largest.groupBy("group").agg(F.max("records").alias("peak")).orderBy(F.desc("peak"), "group").take(_LINES)
    names = [row.group for row in peaks]
    rows = rows_of(largest.where(F.col("group").isin(names)))
    records = {(row.group, row.step): float(row.records) for row in rows}
    form = "%m-%d %H:%M" if step_us % _MINUTE_US == 0 else "%H:%M:%S"
    labels = [f"{to_datetime(start_us + step * step_us):{form}}" for step in range(steps)]
    series = [Series(cell(name), [records.get((name, step)) for step in range(steps)]) for name in names]
    return Chart("Unread records of groups", "lines", labels, series, "records")


def _of_shares(table: DataFrame) -> str:
    """Return the end of the headline: the share group with most redeliveries."""
    first = table.first()
    if first is None or not first.delivered:
        return ""
    text = f"; share group {cell(first.group)}: {counted(first.delivered, 'record')} delivered"
    return f"{text}, {first.redelivered:,} of them again; {counted(first.locksExpired, 'lock')} ran out"


def _chart(of_causes: DataFrame) -> Chart:
    rows = of_causes.take(_BARS)
    labels = [f"{row.group}: {row.cause}" for row in rows]
    parts = {"rebalancing": "rebalancingS", "unread time": "unreadS"}
    series = [Series(name, [float(row[column] or 0) for row in rows]) for name, column in parts.items()]
    return Chart("Cost of rebalances by cause", "bars", labels, series, "s")


def _add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--lag-records", type=positive, metavar="N", help="lag in records from which a group is behind (default: none)"
    )
    parser.add_argument(
        "--lag-age",
        type=length_us,
        default="1m",
        metavar="TIME",
        help="age of the oldest unread record from which a group is behind (default: 1m)",
    )
    parser.add_argument(
        "--for", type=length_us, default="1m", dest="lasting", metavar="TIME", help="shorter episodes do not count (1m)"
    )


JOB = Job("groups", __doc__ or "", answer, _add_options)

if __name__ == "__main__":
    sys.exit(main(JOB))
