"""Histograms of microseconds as columns: the bucket of a duration, and quantiles from counts by bucket.

The buckets are those of the broker's own metrics: nanoseconds, a bucket for each value up to 63, then 32 for each power
of two, up to 137 s, which includes all longer ones. A bucket's middle is within 1.6 % of every value in it. Counts of
several histograms add up, so quantiles over any range are computed from sums.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import reduce

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F  # noqa: N812 - the field's name for it

_STEP_BITS = 5
_STEPS = 1 << _STEP_BITS
MAX_NS = (1 << 37) - 1
#: Number of buckets. Six bucket numbers fit into one long.
_BUCKETS = (MAX_NS.bit_length() - _STEP_BITS + 1) * _STEPS
#: Shifts that set all bits below the highest of a number: four, 16 and 64 of them.
_SMEARS = ((0, 1, 2, 3), (0, 4, 8, 12), (0, 16, 32, 48))


def with_buckets(rows: DataFrame, durations: Sequence[str]) -> DataFrame:
    """Return rows with columns of microseconds replaced by their buckets, ints.

    Spark's logarithm of base 2 is two calls from Java into C. The length of a number is the count of its bits after all
    below the highest are set; each step is a projection of its own, which names its operand and does not repeat it.
    """
    bits = {name: f"_{name}" for name in durations}
    value = f"least(greatest({{}}, 0L) * 1000L, {MAX_NS}L)"
    rows = rows.withColumns({column: F.expr(value.format(name)) for name in bits for column in (name, bits[name])})
    for shifts in _SMEARS:
        rows = rows.withColumns({name: reduce(Column.bitwiseOR, _shifted(name, shifts)) for name in bits.values()})
    steps = {name: F.greatest(F.bit_count(name) - (_STEP_BITS + 1), F.lit(0)) for name in bits.values()}
    rows = rows.withColumns(steps)
    buckets = {name: f"cast({bits[name]} * {_STEPS} + shiftright({name}, {bits[name]}) as int)" for name in bits}
    return rows.withColumns({name: F.expr(text) for name, text in buckets.items()}).drop(*bits.values())


def _shifted(name: str, shifts: Sequence[int]) -> list[Column]:
    return [F.shiftright(name, shift) for shift in shifts]


def packed(names: Sequence[str]) -> Column:
    """Return columns of buckets, at most six, as one long."""
    return reduce(lambda number, name: number * _BUCKETS + F.col(name), names, F.lit(0).cast("long"))


def unpacked(name: str, number: int) -> list[Column]:
    """Return `number` buckets packed into one long, in their order."""
    return [F.expr(f"{name} div {_BUCKETS**place}L % {_BUCKETS}L") for place in reversed(range(number))]


def middle_us(bucket: Column) -> Column:
    """Return the middle of a bucket in microseconds, a double."""
    shift = F.greatest(F.floor(bucket / _STEPS).cast("int") - 1, F.lit(0))
    width = F.pow(F.lit(2.0), shift)
    low = (bucket - shift * _STEPS) * width
    return F.floor(low + (width - 1) / 2) / 1000.0


def quantiles(counts: DataFrame, keys: Sequence[str], wanted: Mapping[str, float], count: str) -> DataFrame:
    """Return one row for each combination of keys: its quantiles in microseconds, named as in `wanted`.

    `counts` has the keys, `bucket` and a column of counts. A quantile is the middle of the first bucket up to which at
    least that fraction of all values lies.
    """
    by_bucket = counts.groupBy(*keys, "bucket").agg(F.sum(count).alias("_here"))
    whole = Window.partitionBy(*keys)
    upward = whole.orderBy("bucket").rowsBetween(Window.unboundedPreceding, Window.currentRow)
    ranked = by_bucket.select(
        *keys, "bucket", F.sum("_here").over(upward).alias("_below"), F.sum("_here").over(whole).alias("_all")
    )
    first = (
        F.min(F.when(F.col("_below") >= F.ceil(F.col("_all") * F.lit(fraction)), F.col("bucket"))).alias(name)
        for name, fraction in wanted.items()
    )
    found = ranked.groupBy(*keys).agg(*first)
    return found.select(*keys, *(middle_us(F.col(name)).alias(name) for name in wanted))
