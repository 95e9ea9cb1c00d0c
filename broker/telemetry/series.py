"""The latest values of the metrics that one client instance has pushed. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final, NamedTuple

from rotunda.broker.telemetry.otlp import Attributes, DataPoint

#: Most metrics of an instance, each with its attributes.
MOST_SERIES: Final = 2000


class TooManySeriesError(Exception):
    """A push would exceed `MOST_SERIES`."""


class LastValue(NamedTuple):
    """The latest value of one metric: of a delta the sum of all pushes; of a histogram with its samples."""

    kind: str
    value: float
    samples: int
    time_ms: int


class Series:
    """The values of one instance, by name and attributes."""

    __slots__ = ("_values",)

    def __init__(self) -> None:
        self._values: dict[tuple[str, Attributes], LastValue] = {}

    def __len__(self) -> int:
        return len(self._values)

    def __iter__(self) -> Iterator[tuple[str, Attributes, LastValue]]:
        return ((name, attributes, value) for (name, attributes), value in self._values.items())

    def clear(self) -> int:
        """Drop all values; return their number."""
        count = len(self._values)
        self._values.clear()
        return count

    def apply(self, points: list[DataPoint]) -> int:
        """Store the points of a whole push; return the number of new series.

        Raises TooManySeriesError, and stores none.
        """
        new = {(point.name, point.attributes) for point in points} - self._values.keys()
        if len(self._values) + len(new) > MOST_SERIES:
            raise TooManySeriesError
        for point in points:
            key = point.name, point.attributes
            known = self._values.get(key)
            value, samples = point.value, point.samples
            if point.is_delta and known is not None and known.kind == point.kind:
                value, samples = known.value + value, known.samples + samples
            self._values[key] = LastValue(point.kind, value, samples, point.time_ns // 1_000_000)
        return len(new)
