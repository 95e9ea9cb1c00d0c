"""A short table for a terminal: aligned, numbers to the right, long texts cut. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime

_LONGEST = 40


def lines(columns: Sequence[str], rows: Sequence[Sequence[object]]) -> list[str]:
    """Return the lines of a table with its header."""
    cells = [[cell(value) for value in row] for row in rows]
    widths = [max([len(name), *(len(row[i]) for row in cells)]) for i, name in enumerate(columns)]
    right = [bool(rows) and all(isinstance(row[i], int | float | None) for row in rows) for i in range(len(columns))]
    table = [list(columns), *cells]
    return [
        "  ".join(text.rjust(w) if r else text.ljust(w) for text, w, r in zip(row, widths, right, strict=True)).rstrip()
        for row in table
    ]


def cell(value: object) -> str:
    """Return a value as one short line that is safe on a terminal."""
    if value is None:
        return "-"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, int):
        return f"{value:,}"
    if isinstance(value, float):
        return f"{value:,.1f}" if abs(value) >= 10 else f"{value:.3g}"
    if isinstance(value, datetime):
        # Spark returns times to the driver in the machine's time zone, without a zone.
        return f"{value.astimezone(UTC):%Y-%m-%d %H:%M:%S}"
    text = printable(str(value))
    return text if len(text) <= _LONGEST else f"{text[: _LONGEST - 1]}…"


def printable(text: str) -> str:
    """Return a text without control characters of terminals."""
    return "".join(char if char.isprintable() else "?" for char in text)
