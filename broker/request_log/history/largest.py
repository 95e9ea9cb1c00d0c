"""The largest of many names, and the others together: the history has few rows a minute, however many names there are.

Pure; runs in the recorder.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final

#: The name of rows for everything without a row of its own.
OTHERS: Final = "others"

#: Most rows of a kind with a name of their own.
MOST_NAMES: Final = 10

Row = dict[str, Any]


def largest(rows: Iterable[Row], combine: Mapping[str, Callable[[int, int], int]], most: int = MOST_NAMES) -> list[Row]:
    """Return the rows with the highest values in the first of the columns to combine, and one row for all others."""
    first = next(iter(combine))
    ordered = sorted(rows, key=lambda row: (row["name"] != OTHERS, row[first] or 0), reverse=True)
    if len(ordered) <= most:
        return ordered
    others = dict(ordered[most])
    others["name"] = OTHERS
    for row in ordered[most + 1 :]:
        for column, join in combine.items():
            if row[column] is not None:
                others[column] = row[column] if others[column] is None else join(others[column], row[column])
    return [*ordered[:most], others]


def total(one: int, other: int) -> int:
    """Return the sum: of counts."""
    return one + other
