"""A terminal's text in colours, tables that fit its width, and a screen that is redrawn. Used by `rotunda top`.

A line is a list of spans; a table's cell is one or more. It knows nothing of the broker.
"""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import NamedTuple

from rotunda.broker.text_table import display_width

_CODES = {"bold": "1", "dim": "2", "green": "32", "yellow": "33", "cyan": "36", "red": "1;31"}
_RESET = "\x1b[0m"
_GAP = "  "
_CUT = "…"
#: A name that is longer is cut, so that the numbers after it fit.
_LONGEST_NAME = 30


class Span(NamedTuple):
    """Text in one style; no style is the terminal's own."""

    text: str
    style: str = ""


Line = Sequence[Span]


def width_of(line: Line) -> int:
    """Return how many columns a line needs."""
    return sum(display_width(span.text) for span in line)


def cut(line: Line, width: int) -> list[Span]:
    """Return the line in at most `width` columns."""
    if width_of(line) <= width:
        return list(line)
    kept: list[Span] = []
    room = width - len(_CUT)
    for span in line:
        text = span.text
        while display_width(text) > room:
            text = text[:-1]
        kept.append(Span(text, span.style))
        room -= display_width(text)
        if text != span.text:
            break
    return [*kept, Span(_CUT)] if width else []


def wrapped(spans: Iterable[Span], width: int) -> list[list[Span]]:
    """Return lines of the spans, with a break before each one that has no room."""
    lines: list[list[Span]] = [[]]
    for span in spans:
        if lines[-1] and width_of(lines[-1]) + display_width(span.text.rstrip()) > width:
            lines.append([])
        lines[-1].append(span)
    return lines


def table(titles: Sequence[str], rows: Sequence[Sequence[Line]], width: int) -> list[list[Span]]:
    """Return the lines of a table; a title with a leading > is of a column of numbers.

    Columns without room are left out, from the right; only the last of all is cut, and long names in the first.
    """
    cells = [[[Span(title.lstrip(">"), "dim")] for title in titles], *([list(cell) for cell in row] for row in rows)]
    widths = [max(width_of(row[column]) for row in cells) for column in range(len(titles))]
    widths[0] = min(widths[0], _LONGEST_NAME, width)
    room = width - widths[0]
    shown = 1
    while shown < len(titles):
        least = len(titles[shown].lstrip(">")) if shown == len(titles) - 1 else widths[shown]
        if room < len(_GAP) + least:
            break
        widths[shown] = min(widths[shown], room - len(_GAP))
        room -= len(_GAP) + widths[shown]
        shown += 1
    return [_row(row[:shown], titles, widths) for row in cells]


def _row(cells: Sequence[Line], titles: Sequence[str], widths: Sequence[int]) -> list[Span]:
    line: list[Span] = []
    for cell, title, width in zip(cells, titles, widths, strict=False):
        text = cut(cell, width)
        padding = Span(" " * (width - width_of(text)))
        gap = [Span(_GAP)] if line else []
        line += [*gap, padding, *text] if title.startswith(">") else [*gap, *text, padding]
    return line


class Screen:
    """Prints lines to stdout: once, or again and again in the same place."""

    def __init__(self) -> None:
        """Use colours on a terminal only, and not if NO_COLOR is set."""
        self.is_terminal = sys.stdout.isatty()
        self._has_colours = self.is_terminal and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"

    @property
    def width(self) -> int:
        """Return the terminal's columns."""
        return shutil.get_terminal_size().columns

    def print(self, lines: Iterable[Line]) -> None:
        """Print each line, cut to the width of the terminal."""
        for line in lines:
            print(self._text(line))

    @contextmanager
    def alternate(self) -> Iterator[None]:
        """Show the terminal's other page, without a cursor, and its first page again at the end."""
        sys.stdout.write("\x1b[?1049h\x1b[?25l")
        try:
            yield
        finally:
            sys.stdout.write("\x1b[?25h\x1b[?1049l")
            sys.stdout.flush()

    def redraw(self, lines: Sequence[Line]) -> None:
        """Replace the page's lines; those below the last row are not shown."""
        shown = lines[: shutil.get_terminal_size().lines - 1]
        sys.stdout.write("\x1b[H" + "".join(f"{self._text(line)}\x1b[K\n" for line in shown) + "\x1b[J")
        sys.stdout.flush()

    def _text(self, line: Line) -> str:
        spans = cut(line, self.width)
        if not self._has_colours:
            return "".join(span.text for span in spans).rstrip()
        return "".join(f"\x1b[{_CODES[span.style]}m{span.text}{_RESET}" if span.style else span.text for span in spans)
