"""Kafka's quota windows: the rate over eleven samples of a second, and how long a client above it is held back.

Pure columns, no feedback: what is measured is the load as it was, not as it would have become (`A11`, `E11`). Samples
are whole seconds of the clock, and a rate is looked at when the second ends in which something was charged.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F  # noqa: N812 - the field's name for it

#: quota.window.num and quota.window.size.seconds as Kafka has them when nobody sets them.
SAMPLES = 11
_SHORTEST_S = SAMPLES - 1
_US = 1_000_000


def second_of(time: Column, later_us: Column) -> Column:
    """Return the second since the epoch in which a time lies, so many microseconds later."""
    return F.floor((F.unix_micros(time) + later_us) / _US).cast("long")


def measured(charges: DataFrame, entity: Sequence[str]) -> DataFrame:
    """Return `rate` a second and `elapsedS`, over which it is taken, for each second in which an entity was charged.

    `charges` has the entity's columns, `second` and `amount`, one row for each second. The rate is the sum of the
    samples that are left by the time since the oldest began, at least all samples but one (`A11`).
    """
    samples = Window.partitionBy(*entity).orderBy("second").rangeBetween(1 - SAMPLES, Window.currentRow)
    since_oldest = F.col("second") + 1 - F.min("second").over(samples)
    elapsed = F.greatest(since_oldest, F.lit(_SHORTEST_S)).cast("double")
    timed = charges.withColumn("elapsedS", elapsed).withColumn("_sum", F.sum("amount").over(samples))
    return timed.withColumn("rate", F.col("_sum") / F.col("elapsedS")).drop("_sum")


def with_throttle(rates: DataFrame, bounds: Mapping[str, float], longest_s: Mapping[str, float]) -> DataFrame:
    """Add `bound` and `throttleS`: (rate - bound) / bound x elapsed, 0 within the bound (`E11`).

    `bounds` and `longest_s`, at most so long, go by the column `quota`; one that is not in `longest_s` has no limit.
    """
    over = (F.col("rate") - F.col("bound")) / F.col("bound") * F.col("elapsedS")
    bounded = rates.withColumn("bound", _by_quota(bounds))
    capped = F.least(F.greatest(over, F.lit(0.0)), F.coalesce(_by_quota(longest_s), F.lit(float("inf"))))
    return bounded.withColumn("throttleS", capped)


def muted_s(entity: Sequence[str]) -> Column:
    """Return the seconds that a throttle adds to those before it: what two of them cover counts once."""
    before = Window.partitionBy(*entity).orderBy("second").rowsBetween(Window.unboundedPreceding, -1)
    until = F.col("second") + 1 + F.col("throttleS")
    since = F.greatest(F.col("second") + F.lit(1.0), F.max(until).over(before))
    return F.greatest(until - since, F.lit(0.0))


def _by_quota(values: Mapping[str, float]) -> Column:
    found = F.lit(None).cast("double")
    for quota, value in values.items():
        found = F.when(F.col("quota") == quota, F.lit(float(value))).otherwise(found)
    return found
