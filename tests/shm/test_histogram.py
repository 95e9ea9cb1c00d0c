"""Log-linear histograms: buckets cover every value, within 2 %, and quantiles follow."""

import random
import secrets

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rotunda.shm.metrics.histogram import BUCKETS, MAX_VALUE, HistogramReading, bounds_of, bucket_of, buckets_of


def reading_of(values: list[int]) -> HistogramReading:
    counts = [0] * BUCKETS
    for value in values:
        counts[bucket_of(value)] += 1
    return HistogramReading(counts, sum(values), max(values, default=0))


def test_buckets_follow_each_other_without_gaps() -> None:
    after = 0
    for bucket in range(BUCKETS):
        low, high = bounds_of(bucket)
        assert low == after
        assert bucket_of(low) == bucket_of(high) == bucket
        after = high + 1
    assert after == MAX_VALUE + 1


@given(st.integers(0, MAX_VALUE))
def test_the_middle_of_a_bucket_is_within_two_percent(value: int) -> None:
    low, high = bounds_of(bucket_of(value))
    assert low <= value <= high
    assert abs((low + high) // 2 - value) <= 0.02 * value


@given(st.lists(st.integers(-(1 << 40), 1 << 62), min_size=1))
def test_many_values_go_where_each_would(values: list[int]) -> None:
    expected = [bucket_of(value) for value in values]
    assert buckets_of(np.array(values, dtype=np.int64)).tolist() == expected


def test_powers_of_two_and_their_neighbours() -> None:
    values = [1 << bit | 0 for bit in range(62)] + [(1 << bit) - 1 for bit in range(62)]
    assert buckets_of(np.array(values)).tolist() == [bucket_of(value) for value in values]


def test_quantiles_are_within_two_percent() -> None:
    seed = secrets.randbits(32)
    print(f"seed {seed}")
    chance = random.Random(seed)
    values = sorted(int(chance.lognormvariate(12, 2)) for _ in range(5000))
    reading = reading_of(values)
    for fraction in (0.0, 0.5, 0.9, 0.99, 0.999, 1.0):
        exact = values[max(0, -int(-fraction * len(values) // 1) - 1)]
        assert reading.quantile(fraction) == pytest.approx(exact, rel=0.02), (seed, fraction)
    assert reading.mean == pytest.approx(sum(values) / len(values))


def test_an_empty_histogram_reads_as_zero() -> None:
    empty = reading_of([])
    assert (empty.count, empty.mean, empty.quantile(0.5)) == (0, 0.0, 0)


def test_quantiles_of_zeroes_are_zero() -> None:
    assert reading_of([0, 0]).quantile(0.99) == 0


def test_since_is_what_came_in_between() -> None:
    later = reading_of([1, 2, 3, 1000]).since(reading_of([2, 3]))
    assert (later.count, later.sum) == (2, 1001)
    assert later.quantile(0.5) == 1
