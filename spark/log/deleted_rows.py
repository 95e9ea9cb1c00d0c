"""Rows deleted by retention from hours that the hourly tables have: the hours, the number, and a sentence for readers.

Pure. Reports that need rows lack such hours, and the hourly tables cover only whole ones.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from rotunda.broker.text_table import counted
from rotunda.spark.time_range import HOUR_US, to_datetime

#: Most spans that are named one by one; of more only the first and the last are.
_MOST_SPANS = 3


@dataclass(frozen=True, slots=True)
class Deleted:
    """Hours since the epoch of whose stored rows the log no longer has all.

    `hours` lie whole in the range, and `rows` is the number of their deleted rows; `edges` lie in it partly, so that
    the hourly tables have no data for that part.
    """

    hours: tuple[int, ...] = ()
    rows: int = 0
    edges: tuple[int, ...] = ()

    def __add__(self, other: Deleted) -> Deleted:
        return Deleted(self.hours + other.hours, self.rows + other.rows, self.edges + other.edges)

    def sentence(self, lacking: str) -> str:
        """Return the effect on a result, empty if none; `lacking` describes its missing rows in such hours."""
        parts = []
        if self.hours and lacking:
            parts.append(f"retention has deleted {counted(self.rows, 'row')} of {_named(self.hours)}: {lacking}")
        if self.edges:
            parts.append(
                f"retention has deleted rows of {_named(self.edges)}, only partly in the range: their data is "
                "partly missing"
            )
        return "; ".join(parts)


NOTHING_DELETED = Deleted()


def spans_of(hours: Sequence[int]) -> list[tuple[int, int]]:
    """Return ordered hours as spans of neighbours: the first hour and the one after the last."""
    found: list[tuple[int, int]] = []
    for hour in hours:
        if found and found[-1][1] == hour:
            found[-1] = (found[-1][0], hour + 1)
        else:
            found.append((hour, hour + 1))
    return found


def _named(hours: Sequence[int]) -> str:
    spans = spans_of(hours)
    if len(spans) > _MOST_SPANS:
        return f"{len(hours):,} hours within {_span(spans[0][0], spans[-1][1])} UTC"
    return f"{', '.join(_span(*span) for span in spans)} UTC"


def _span(first: int, end: int) -> str:
    return f"{to_datetime(first * HOUR_US):%Y-%m-%d %H:%M} to {to_datetime(end * HOUR_US):%Y-%m-%d %H:%M}"
