"""Log-linear histograms: the bucket of a value, and the quantiles of a row of bucket counts.

Pure arithmetic; knows no memory. Values up to 63 have a bucket each; above, each power of two is divided into 32
buckets. A bucket's middle is within 1/64 (1.6 %) of every value in it. Values above MAX_VALUE count as MAX_VALUE.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

    import numpy
    from numpy.typing import NDArray

_STEP_BITS = 5
_STEPS = 1 << _STEP_BITS
_VALUE_BITS = 37
_DOUBLE_MANTISSA_BITS = 52
_DOUBLE_BIAS = 1023
_FIRST_DOUBLE = (_DOUBLE_BIAS + _STEP_BITS - 1) * _STEPS
MAX_VALUE = (1 << _VALUE_BITS) - 1  # in nanoseconds: 137 s
BUCKETS = (_VALUE_BITS - _STEP_BITS + 1) * _STEPS


def bucket_of(value: int) -> int:
    """Return the bucket of `value`; a negative one counts as 0."""
    value = min(max(value, 0), MAX_VALUE)
    shift = max(value.bit_length() - _STEP_BITS - 1, 0)
    return shift * _STEPS + (value >> shift)


def buckets_of(values: NDArray[numpy.int64]) -> NDArray[numpy.int64]:
    """Return the buckets of many values, each as from `bucket_of`."""
    import numpy  # noqa: PLC0415  numpy takes 45 ms to import and the start-up path does without it

    clipped = numpy.minimum(numpy.maximum(values, 0), MAX_VALUE)
    # A double has the bucket in its bits: the exponent, then the mantissa's first bits. It is exact, since values have
    # far fewer bits than a double's 53.
    buckets: NDArray[numpy.int64] = clipped.astype(numpy.float64).view(numpy.int64)
    buckets >>= _DOUBLE_MANTISSA_BITS - _STEP_BITS
    buckets -= _FIRST_DOUBLE
    numpy.copyto(buckets, clipped, where=clipped < _STEPS)
    return buckets


def bounds_of(bucket: int) -> tuple[int, int]:
    """Return the lowest and highest value of `bucket`."""
    shift = max(bucket // _STEPS - 1, 0)
    low = (bucket - shift * _STEPS) << shift
    return low, low + (1 << shift) - 1


@dataclass(frozen=True, slots=True)
class HistogramReading:
    """A copy of one histogram: counts by bucket, and the exact sum and maximum of the values."""

    counts: Sequence[int]
    sum: int
    max: int

    @property
    def count(self) -> int:
        """The number of recorded values."""
        return sum(self.counts)

    @property
    def mean(self) -> float:
        """Return the mean, 0.0 without values."""
        count = self.count
        return self.sum / count if count else 0.0

    def quantile(self, fraction: float) -> int:
        """Return a value within 2 % of the one below which `fraction` of all values lie; 0 without values."""
        count = self.count
        if not count:
            return 0
        rank = min(max(1, -int(-fraction * count // 1)), count)
        for bucket, here in enumerate(self.counts):
            rank -= here
            if rank <= 0:
                low, high = bounds_of(bucket)
                return min((low + high) // 2, self.max) if self.max else (low + high) // 2
        return self.max

    def since(self, earlier: HistogramReading) -> HistogramReading:
        """Return the values recorded after the reading `earlier`; `max` stays that of all time."""
        counts = [now - before for now, before in zip(self.counts, earlier.counts, strict=True)]
        return HistogramReading(counts, self.sum - earlier.sum, self.max)
