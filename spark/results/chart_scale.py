"""The scale of a chart's values and the width of its texts: round ticks, numbers with units, estimated widths.

Pure. Widths are estimates for a common sans-serif face, on the safe side: an SVG file cannot measure.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeGuard
from unicodedata import east_asian_width

FONT_SIZE = 12

#: Steps between ticks, times a power of ten.
_STEPS = (1, 2, 2.5, 5, 10)
_MOST_TICKS = 6

#: Names and sizes by unit, ascending; the first size is that of a value of 1. Other units use _COUNTS.
_TIMES = (("µs", 1.0), ("ms", 1e3), ("s", 1e6))
_SIZES = (("B", 1.0), ("kB", 1e3), ("MB", 1e6), ("GB", 1e9), ("TB", 1e12), ("PB", 1e15))
_COUNTS = (("", 1.0), ("k", 1e4), ("M", 1e6), ("G", 1e9))
_THOUSANDS = {"k": 1e3}
_FAMILIES = {
    "µs": (_TIMES, 1.0, ""), "ms": (_TIMES, 1e3, ""), "s": (_TIMES, 1e6, ""),
    "B": (_SIZES, 1.0, ""), "bytes": (_SIZES, 1.0, ""), "B/s": (_SIZES, 1.0, "/s"), "bytes/s": (_SIZES, 1.0, "/s"),
    "%": ((("%", 1.0),), 1.0, ""), "share": ((("%", 0.01),), 1.0, ""),
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Scale:
    """An axis from 0 to `top` in the unit of the values; `step` is the distance of its ticks."""

    unit: str
    top: float
    step: float
    size: float
    name: str

    @classmethod
    def of(cls, highest: float, unit: str) -> Scale:
        """Return a scale that begins at 0 and includes a value."""
        highest = highest if math.isfinite(highest) and highest > 0 else 1.0
        size, name = _name_of(highest, unit)
        wanted = highest / size / (_MOST_TICKS - 1)
        power = 10.0 ** math.floor(math.log10(wanted))
        step = next((each * power for each in _STEPS if each * power >= wanted * (1 - 1e-9)), 10 * power)
        return cls(unit, math.ceil(highest / size / step - 1e-9) * step * size, step * size, size, name)

    def ticks(self) -> list[tuple[float, str]]:
        """Return the positions of the ticks and their labels, all in one unit."""
        count = round(self.top / self.step)
        decimals = max(0, -math.floor(math.log10(self.step / self.size) + 1e-9))
        # A step of 2.5 has one digit more than its power of ten.
        decimals += round(self.step / self.size, decimals) != self.step / self.size
        upward = (i * self.step for i in range(1, count + 1))
        return [(0.0, "0"), *((each, self._with_name(f"{each / self.size:,.{decimals}f}")) for each in upward)]

    def text(self, value: float) -> str:
        """Return a value with a suitable unit."""
        return self.short(value) + (f" {visible(self.unit)}" if self.unit and not has_sizes(self.unit) else "")

    def short(self, value: float) -> str:
        """Return a value in a suitable size, without the name of the counted things."""
        size, name = _name_of(abs(value), self.unit)
        shown = value / size
        digits = f"{shown:,.0f}" if abs(shown) >= 100 or shown == int(shown) else f"{shown:,.3g}"
        return f"{digits} {name}" if name else digits

    def _with_name(self, digits: str) -> str:
        return f"{digits} {self.name}" if self.name else digits


def has_sizes(unit: str) -> bool:
    """Return whether a unit is shown with each value, in a suitable size."""
    return unit in _FAMILIES


def is_known(value: float | None) -> TypeGuard[float]:
    """Return whether a value can be drawn."""
    return value is not None and math.isfinite(value)


def _name_of(value: float, unit: str) -> tuple[float, str]:
    """Return the best size of the unit for a value, as a multiple of the value's own unit, and its name."""
    names, factor, ending = _FAMILIES.get(unit, (_COUNTS, 1.0, ""))
    name, size = next(((name, size) for name, size in reversed(names) if value * factor >= size), names[0])
    return _THOUSANDS.get(name, size) / factor, name + ending


def visible(text: str) -> str:
    """Return a text without invisible characters and those invalid in XML."""
    return "".join(char if char.isprintable() else "?" for char in text)


def text_width(text: str) -> float:
    """Return the approximate width of a text in pixels."""
    return FONT_SIZE * sum(map(_em, text))


def fitted(text: str, width: float) -> str:
    """Return the visible text, cut to a width."""
    text = visible(text)
    if text_width(text) <= width:
        return text
    used, end = _em("…") * FONT_SIZE, 0
    for char in text:
        used += _em(char) * FONT_SIZE
        if used > width:
            break
        end += 1
    return f"{text[:end]}…"


def widest(texts: Sequence[str]) -> float:
    """Return the width of the widest text; 0 without texts."""
    return max(map(text_width, texts), default=0.0)


def _em(char: str) -> float:
    if char in "iljtfrI.,:;|!'()[] ":
        return 0.4
    if east_asian_width(char) in "WF" or char in "mMW@%…":
        return 1.0
    return 0.74 if char.isupper() or char == "w" else 0.63
