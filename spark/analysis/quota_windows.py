"""Kafka's quotas: rates over eleven samples of a second, token buckets, and throttle times.

Pure columns. A rate is that of the load as logged, not as it would have become (`A11`, `E11`). A rejected request that
the client retries counts once, when the quota accepts it (`E12`, `E15`). Samples are whole seconds of the clock, and a
rate is computed at the end of each second with a charge.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F  # noqa: N812 - the field's name for it

#: Kafka's defaults of quota.window.num and quota.window.size.seconds.
SAMPLES = 11
_SHORTEST_S = SAMPLES - 1
_US = 1_000_000


def second_of(time: Column, later_us: Column) -> Column:
    """Return the second since the epoch that contains a time plus some microseconds."""
    return F.floor((F.unix_micros(time) + later_us) / _US).cast("long")


def measured(charges: DataFrame, entity: Sequence[str]) -> DataFrame:
    """Return `rate` per second and `elapsedS`, its time span, for each second in which an entity was charged.

    `charges` has the entity's columns, `second` and `amount`, one row for each second. The rate is the sum of the
    current samples by the time since the oldest began, at least all samples but one (`A11`).
    """
    samples = Window.partitionBy(*entity).orderBy("second").rangeBetween(1 - SAMPLES, Window.currentRow)
    since_oldest = F.col("second") + 1 - F.min("second").over(samples)
    elapsed = F.greatest(since_oldest, F.lit(_SHORTEST_S)).cast("double")
    timed = charges.withColumn("elapsedS", elapsed).withColumn("_sum", F.sum("amount").over(samples))
    return timed.withColumn("rate", F.col("_sum") / F.col("elapsedS")).drop("_sum")


def with_throttle(rates: DataFrame, bounds: Mapping[str, float], longest_s: Mapping[str, float]) -> DataFrame:
    """Add `bound` and `throttleS`: (rate - bound) / bound x elapsed, 0 within the bound (`E11`).

    `bounds` and `longest_s`, the longest throttle, are keyed by the column `quota`; one missing in `longest_s` has no
    limit.
    """
    over = (F.col("rate") - F.col("bound")) / F.col("bound") * F.col("elapsedS")
    bounded = rates.withColumn("bound", _by_quota(bounds))
    capped = F.least(F.greatest(over, F.lit(0.0)), F.coalesce(_by_quota(longest_s), F.lit(float("inf"))))
    return bounded.withColumn("throttleS", capped)


def with_late(charges: DataFrame, entity: Sequence[str]) -> DataFrame:
    """Add `late`: the requested bytes that would not have arrived at the end of a second, because of its bound (`E12`).

    A Fetch over its quota is charged nothing and retried. So deliveries follow requests as closely as the samples
    allow: at most ten bounds in ten seconds and eleven in eleven, hence in t seconds S(t) = bound x max(10 x ceil(t /
    11), t). The most that satisfies this and never runs ahead is the least of X(u) + S(s - u) over all seconds u up to
    s, X being the sum of the requested bytes. X never falls, so except for u = s only those matter that lie 10 k to 11
    k seconds back, where S is bound x t; from k = 9 on these spans leave no gap.
    """
    seconds = Window.partitionBy(*entity).orderBy("second")
    so_far = seconds.rowsBetween(Window.unboundedPreceding, Window.currentRow)
    bound = F.col("bound")
    placed = charges.withColumn("_at", F.col("second") - F.first("second").over(so_far))
    placed = placed.withColumn("_asked", F.sum("amount").over(so_far))
    # Between two rows the sum is constant: the last second before the later row counts.
    before = F.col("_asked") - F.col("amount") - bound * (F.col("_at") - 1)
    placed = placed.withColumn("_ahead", F.col("_asked") - bound * F.col("_at")).withColumn("_before", before)
    least = []
    for number in range(1, SAMPLES - 1):
        nearest = _SHORTEST_S * number
        farthest = Window.unboundedPreceding if number == SAMPLES - 2 else 1 - SAMPLES * number
        asked = F.sum("amount").over(seconds.rangeBetween(Window.unboundedPreceding, -nearest))
        least += [
            F.min("_before").over(seconds.rangeBetween(farthest, 1 - nearest)),
            F.coalesce(asked, F.lit(0)) - bound * (F.col("_at") - nearest),
        ]
    late = F.col("_ahead") - F.least("_ahead", *least)
    return placed.withColumn("late", late).drop("_at", "_asked", "_ahead", "_before")


def with_token_throttle(changes: DataFrame, entity: Sequence[str], bound: float) -> DataFrame:
    """Add `throttleS` of a token bucket, which is full at first and holds eleven seconds' worth (`E15`).

    `changes` have the entity's columns, `timeUs`, `tokens`, and `isStrict`: rejected, and assumed to be retried, while
    the bucket is below empty; others pass and are throttled for the deficit they cause. Between two full buckets the
    missing tokens are those drained since the first, less those refilled.
    """
    so_far = (
        Window.partitionBy(*entity)
        .orderBy("timeUs", "tokens", "isStrict")
        .rowsBetween(Window.unboundedPreceding, Window.currentRow)
    )
    seconds = (F.col("timeUs") - F.first("timeUs").over(so_far)) / _US
    owed = F.sum("tokens").over(so_far) - F.col("tokens") - F.lit(bound) * seconds
    left = changes.withColumn("_owed", owed)
    missing = F.col("_owed") - F.min("_owed").over(so_far)
    below = missing + F.when(F.col("isStrict"), F.lit(0.0)).otherwise(F.col("tokens")) - bound * SAMPLES
    return left.withColumn("throttleS", F.greatest(below / bound, F.lit(0.0))).drop("_owed")


def muted_s(entity: Sequence[str]) -> Column:
    """Return the seconds that a throttle adds to those before it: overlaps count once."""
    before = Window.partitionBy(*entity).orderBy("second").rowsBetween(Window.unboundedPreceding, -1)
    until = F.col("second") + 1 + F.col("throttleS")
    since = F.greatest(F.col("second") + F.lit(1.0), F.max(until).over(before))
    return F.greatest(until - since, F.lit(0.0))


def _by_quota(values: Mapping[str, float]) -> Column:
    found = F.lit(None).cast("double")
    for quota, value in values.items():
        found = F.when(F.col("quota") == quota, F.lit(float(value))).otherwise(found)
    return found
