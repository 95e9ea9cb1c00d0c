"""Text for people: aligned tables, and names that cannot play tricks on a terminal."""

from __future__ import annotations

import unicodedata
from collections.abc import Iterable, Sequence

Cell = str | int | float | None

#: Number of names in a suggestion, and the difference of their similarities to the given one.
_MOST_NEAR, _AS_NEAR = 3, 0.03
_UNKNOWN = "-"
_GAP = "  "


def printable(text: str) -> str:
    r"""Return the text with unprintable characters escaped, as in `\x1b`."""
    return "".join(each if each.isprintable() else each.encode("unicode_escape").decode() for each in text)


def quoted(name: str) -> str:
    """Return a name as it is if it reads as one word, else in quotes with everything odd escaped."""
    if name and name != _UNKNOWN and name.isprintable() and not set(name) & set(' "\\'):
        return name
    escaped = name.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{printable(escaped)}"'


def suggestion(name: str, known: Iterable[str], command: str) -> str:
    """Return the end of an error about an unknown name: the closest known ones, or else the command that lists them."""
    near = _closest(name, known)
    return f"; did you mean {near}?" if near else f"; see `{command}`"


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """Return a hint with the closest known name, or several that are equally close; empty when none is close."""
    near = _closest(name, known)
    return f" (did you mean {near}?)" if near else ""


def _closest(name: str, known: Iterable[str]) -> str:
    from difflib import SequenceMatcher, get_close_matches  # noqa: PLC0415 - only for an error

    near = get_close_matches(name, sorted(known), n=_MOST_NEAR)
    ratios = [SequenceMatcher(None, each, name).ratio() for each in near]
    return " or ".join(quoted(each) for each, ratio in zip(near, ratios, strict=True) if ratio > ratios[0] - _AS_NEAR)


def byte_size(value: float | None) -> str:
    """Return a number of bytes with its unit, a dash for an unknown one."""
    if value is None:
        return _UNKNOWN
    for unit, size in (("GB", 1e9), ("MB", 1e6), ("kB", 1e3)):
        if value >= size:
            return f"{value / size:.1f} {unit}"
    return f"{value:.0f} B"


def counted(number: int, noun: str) -> str:
    """Return a number and a noun, in the plural unless it is one."""
    if number != 1:
        plural = "es" if noun.endswith(("s", "ch")) else "s"
        noun = f"{noun.removesuffix('y')}ies" if noun.endswith("ry") else noun + plural
    return f"{number:,} {noun}"


def aligned(headers: Sequence[str], rows: Sequence[Sequence[Cell]]) -> list[str]:
    """Return the lines of a table: numbers to the right, text to the left, a dash for unknown values.

    Strings are printed unchanged: text received from a broker must have passed `quoted` or `printable`.
    """
    texts = [[_text(cell) for cell in row] for row in rows]
    numeric = [_is_numeric([row[i] for row in rows]) for i in range(len(headers))]
    widths = [max(width(row[i]) for row in (headers, *texts)) for i in range(len(headers))]
    lines = []
    for row in (headers, *texts):
        cells = []
        for text, columns, is_numeric in zip(row, widths, numeric, strict=True):
            padding = " " * (columns - width(text))
            cells.append(padding + text if is_numeric else text + padding)
        lines.append(_GAP.join(cells).rstrip())
    return lines


def _is_numeric(cells: Sequence[Cell]) -> bool:
    known = [cell for cell in cells if cell is not None]
    return bool(known) and not any(isinstance(cell, str) for cell in known)


def _text(cell: Cell) -> str:
    if cell is None:
        return _UNKNOWN
    return f"{cell:.1f}" if isinstance(cell, float) else str(cell)


def fitted(text: str, columns: int) -> str:
    """Return the text, cut to this number of columns of a terminal."""
    if width(text) <= columns:
        return text
    end, left = 0, columns - 1
    for each in text:
        left -= width(each)
        if left < 0:
            break
        end += 1
    return f"{text[:end]}…" if columns > 0 else ""


def width(text: str) -> int:
    """Return the number of columns of a terminal that a text needs."""
    if text.isascii():
        return len(text)
    return sum(
        0 if unicodedata.combining(each) else 2 if unicodedata.east_asian_width(each) in "WF" else 1 for each in text
    )
