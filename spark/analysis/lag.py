"""The lag of groups, from the rows `lag` of the dataset groups: at a moment, and in episodes.

Pure. A row of a group and topic holds until the next one: its unread records stay the same, and their age grows with
the clock. Times are microseconds since the epoch.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as F  # noqa: N812 - the field's name for it

_US = 1_000_000


@dataclass(frozen=True, slots=True)
class Bounds:
    """When a group is behind: more than `records` unread or older than `age_us`, for at least `for_us`."""

    records: int | None
    age_us: int
    for_us: int


def spans(lag: DataFrame, end_us: int) -> DataFrame:
    """Return the span for which each row holds, the last of a group and topic until `end_us`.

    `oldestUs` is the time of the oldest unread record; null when nothing is unread or the age is unknown.
    """
    from_us = F.unix_micros("time")
    in_order = Window.partitionBy("group", "topic").orderBy("fromUs")
    oldest = F.when(F.col("records") > 0, F.col("fromUs") - F.col("durationUs"))
    placed = lag.select("group", "topic", from_us.alias("fromUs"), "records", "durationUs")
    until = F.coalesce(F.lead("fromUs").over(in_order), F.greatest(F.lit(end_us), F.col("fromUs")))
    return placed.select("group", "topic", "fromUs", until.alias("untilUs"), "records", oldest.alias("oldestUs"))


def ages_at(held: DataFrame, moments: DataFrame, key: Sequence[str]) -> DataFrame:
    """Return `ageUs` of the oldest unread record of each topic of a group at some moments; null where unknown.

    `held` are the spans; `moments` have `group`, `atUs` and the columns of `key`, which the result has too, with
    `topic`.
    """
    topics = held.select("group", "topic").distinct()
    asked = moments.select("group", "atUs", *key).join(topics, "group")
    asked = asked.withColumn("isAsked", F.lit(True)).withColumn("state", F.lit(None).cast("struct<r:long,o:long>"))
    state = F.struct(F.col("records").alias("r"), F.col("oldestUs").alias("o"))
    known = held.select(
        "group", "topic", F.col("fromUs").alias("atUs"), F.lit(False).alias("isAsked"), state.alias("state")
    )
    both = known.unionByName(asked, allowMissingColumns=True)
    until_now = Window.partitionBy("group", "topic").orderBy("atUs", "isAsked")
    until_now = until_now.rowsBetween(Window.unboundedPreceding, Window.currentRow)
    filled = both.withColumn("last", F.last("state", ignorenulls=True).over(until_now)).where("isAsked")
    is_known = F.col("last.o").isNotNull()
    age = F.when(F.col("last.r") == 0, F.lit(0)).when(is_known, F.greatest(F.col("atUs") - F.col("last.o"), F.lit(0)))
    return filled.select("group", "topic", *key, age.alias("ageUs"))


def over_time(held: DataFrame, start_us: int, step_us: int) -> DataFrame:
    """Return the largest lag of each group in each step since `start_us`: `step` and `records`, over all topics."""
    first = F.floor((F.greatest(F.col("fromUs"), F.lit(start_us)) - start_us) / step_us)
    last = F.floor((F.greatest(F.col("untilUs") - 1, F.col("fromUs"), F.lit(start_us)) - start_us) / step_us)
    steps = held.select("group", "topic", "records", F.explode(F.sequence(first, last)).alias("step"))
    largest = steps.groupBy("group", "topic", "step").agg(F.max("records").alias("records"))
    return largest.groupBy("group", "step").agg(F.sum("records").alias("records"))


def episodes(held: DataFrame, bounds: Bounds, end_us: int) -> DataFrame:
    """Return when groups were behind: start, end, whether still so at `end_us`, peaks, and the area under the records.

    A group's records are the sum over its topics; its age is that of the oldest record of any topic.
    """
    steps = _steps(held, bounds, end_us)
    in_order = Window.partitionBy("group").orderBy("atUs")
    so_far = in_order.rowsBetween(Window.unboundedPreceding, Window.currentRow)
    has_changed = F.coalesce(F.col("isBehind") != F.lag("isBehind").over(in_order), F.lit(True))
    numbered = steps.withColumn("hasChanged", has_changed.cast("int"))
    numbered = numbered.withColumn("number", F.sum("hasChanged").over(so_far))
    area = F.sum(F.col("total") * (F.col("untilUs") - F.col("atUs"))) / _US
    found = (
        numbered.where("isBehind")
        .groupBy("group", "number")
        .agg(
            F.min("atUs").alias("startUs"),
            F.max("untilUs").alias("endUs"),
            F.max("total").alias("peakRecords"),
            area.alias("recordSeconds"),
        )
    )
    lasting = found.where(F.col("endUs") - F.col("startUs") >= bounds.for_us)
    peaks = _peak_ages(held, lasting)
    return lasting.join(peaks, ["group", "number"], "left").select(
        "group",
        F.timestamp_micros("startUs").alias("start"),
        F.timestamp_micros("endUs").alias("end"),
        (F.col("endUs") >= end_us).alias("goesOn"),
        ((F.col("endUs") - F.col("startUs")) / _US).alias("lengthS"),
        "peakRecords",
        (F.col("peakAgeUs") / _US).alias("peakAgeS"),
        "recordSeconds",
    )


def _steps(held: DataFrame, bounds: Bounds, end_us: int) -> DataFrame:
    """Return the spans in which a group's records, and the set of topics that are too old, stay the same."""
    in_order = Window.partitionBy("group", "topic").orderBy("fromUs")
    grown = F.col("records") - F.coalesce(F.lag("records").over(in_order), F.lit(0))
    nothing = F.lit(0).cast("long")
    records = held.select("group", F.col("fromUs").alias("atUs"), grown.alias("more"), nothing.alias("old"))
    aged = F.greatest(F.col("fromUs"), F.col("oldestUs") + bounds.age_us)
    old = held.withColumn("agedUs", aged).where(F.col("oldestUs").isNotNull() & (F.col("agedUs") < F.col("untilUs")))
    begins = old.select("group", F.col("agedUs").alias("atUs"), nothing.alias("more"), (nothing + 1).alias("old"))
    ends = old.select("group", F.col("untilUs").alias("atUs"), nothing.alias("more"), (nothing - 1).alias("old"))
    changes = records.unionByName(begins).unionByName(ends)
    summed = changes.groupBy("group", "atUs").agg(F.sum("more").alias("more"), F.sum("old").alias("old"))
    in_time = Window.partitionBy("group").orderBy("atUs")
    so_far = in_time.rowsBetween(Window.unboundedPreceding, Window.currentRow)
    until = F.coalesce(F.lead("atUs").over(in_time), F.lit(end_us))
    steps = summed.select(
        "group",
        "atUs",
        until.alias("untilUs"),
        F.sum("more").over(so_far).alias("total"),
        F.sum("old").over(so_far).alias("old"),
    )
    is_behind = F.col("old") > 0
    if bounds.records is not None:
        is_behind = is_behind | (F.col("total") > bounds.records)
    return steps.where(F.col("atUs") < F.col("untilUs")).withColumn("isBehind", is_behind)


def _peak_ages(held: DataFrame, found: DataFrame) -> DataFrame:
    within = held.where(F.col("oldestUs").isNotNull()).join(
        found.select("group", "number", "startUs", "endUs"), "group"
    )
    overlaps = (F.col("fromUs") < F.col("endUs")) & (F.col("untilUs") > F.col("startUs"))
    age = F.least("untilUs", "endUs") - F.col("oldestUs")
    return within.where(overlaps).groupBy("group", "number").agg(F.max(age).alias("peakAgeUs"))
