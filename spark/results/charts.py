"""Charts: bars and lines as SVG, alone in a self-contained HTML file or inline on the status page.

Pure: numbers in, text out. Colours are CSS variables, so that a chart follows the page around it; the HTML file has
values for light and dark. Every text from outside is escaped. Hints are plain titles: no scripts.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from html import escape

from rotunda.spark.results.chart_parts import (
    COLOURS,
    WIDTH,
    Chart,
    Series,
    amount_of,
    axis_title,
    colour_of,
    dash_of,
    hint,
    legend_of,
    line,
    rect,
    text_at,
    whole_of,
)
from rotunda.spark.results.chart_scale import FONT_SIZE, Scale, fitted, is_known, text_width, visible, widest

__all__ = ["Chart", "Series", "to_html", "to_svg"]

_HEIGHT = 300
_RIGHT, _BOTTOM, _GAP = 14, 26, 8
_ROW, _THICKNESS = 28, 18
#: Nearly half of the width: a group with the cause of its rebalance.
_LONGEST_LABEL = 330
#: Bars are horizontal when their labels would not fit below them, unless there are more than this.
_MOST_ROWS = 30
#: Most hints: narrower ones would be too small for a pointer.
_MOST_HINTS = 500
_MOST_DOTS = 40
_DARK = ("#5ba3d0", "#d9a441", "#a57cc2", "#48ab9d", "#8896a4", "#d17a9d")


@dataclass(frozen=True, slots=True)
class _Box:
    """The drawing area of the picture, between its axes, and the scale of its values."""

    left: float
    top: float
    right: float
    bottom: float
    scale: Scale

    def x(self, value: float) -> float:
        return self.left + (self.right - self.left) * value / self.scale.top

    def y(self, value: float) -> float:
        return self.bottom - (self.bottom - self.top) * value / self.scale.top

    def column(self, labels: Sequence[str]) -> float:
        return (self.right - self.left) / max(1, len(labels))


def to_svg(chart: Chart) -> str:
    """Return a chart as an SVG element that uses the colours --chart-1 to --chart-6, --ink, --soft and --grid."""
    legend, top = legend_of(chart)
    if not chart.labels or not any(_known(series) for series in chart.series):
        height, drawn = 90.0, [text_at(WIDTH / 2, 50, "Nothing to draw: no values in this range", "middle", soft=True)]
    elif chart.kind == "shares" or (chart.kind == "bars" and _lie_down(chart)):
        height, drawn = _rows(chart, top)
    else:
        height, drawn = _HEIGHT + top, {"lines": _lines, "bars": _columns}[chart.kind](chart, top)
    title = escape(visible(chart.title))
    head = (
        f'<svg class="chart" viewBox="0 0 {WIDTH} {height:.0f}" role="img" aria-label="{title}" '
        f'font-family="system-ui, sans-serif" font-size="{FONT_SIZE}" xmlns="http://www.w3.org/2000/svg">'
    )
    return "\n".join((head, *drawn, *(legend if len(drawn) > 1 else ()), "</svg>"))


def to_html(chart: Chart) -> str:
    """Return a self-contained page with the chart, light or dark as its reader prefers."""
    title = escape(visible(chart.title))
    return f"""<!doctype html>
<html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width, initial-scale=1">
<title>{title}</title><style>
:root {{ color-scheme: light dark; --ink: #1a2129; --soft: #56616e; --grid: #dde1e6; --back: #ffffff;
  {_palette(COLOURS)} }}
@media (prefers-color-scheme: dark) {{ :root {{ --ink: #e3e8ed; --soft: #a3adb8; --grid: #2c343d; --back: #191e24;
  {_palette(_DARK)} }} }}
body {{ margin: 0 auto; padding: 1.5rem; max-width: 60rem; background: var(--back); color: var(--ink);
  font: 15px system-ui, sans-serif; }}
h1 {{ font-size: 1.2rem; font-weight: 650; }}
div {{ overflow-x: auto; }}
.chart {{ display: block; width: 100%; min-width: 520px; height: auto; }}
.chart-hint {{ opacity: 0; }} .chart-hint:hover {{ fill-opacity: 1; opacity: .1; }}
</style></head><body><h1>{title}</h1>
<div>
{to_svg(chart)}
</div></body></html>
"""


def _palette(colours: Sequence[str]) -> str:
    return " ".join(f"--chart-{place}: {colour};" for place, colour in enumerate(colours, 1))


def _lie_down(chart: Chart) -> bool:
    column = (WIDTH - 80) / len(chart.labels)
    return len(chart.labels) <= _MOST_ROWS and widest([visible(label) for label in chart.labels]) > column - _GAP


def _lines(chart: Chart, top: float) -> list[str]:
    highest = max(value for series in chart.series for _, value in _known(series))
    box = _upright(chart, highest, top)
    column = box.column(chart.labels)
    parts = _upright_axes(chart, box)
    for place, series in enumerate(chart.series):
        for run in _runs(series):
            points = [(box.left + (i + 0.5) * column, box.y(max(0.0, value))) for i, value in run]
            if len(points) > 1:
                shown = " ".join(f"{x:.1f},{y:.1f}" for x, y in points)
                parts.append(
                    f'<polyline points="{shown}" fill="none" stroke="{colour_of(series, place)}" stroke-width="2" '
                    f'stroke-linejoin="round"{dash_of(place)}/>'
                )
            if len(points) == 1 or len(chart.labels) <= _MOST_DOTS:
                parts += [
                    f'<circle cx="{x:.1f}" cy="{y:.1f}" r="2.5" fill="{colour_of(series, place)}"/>' for x, y in points
                ]
    return parts + _column_hints(chart, box)


def _known(series: Series) -> list[tuple[int, float]]:
    return [(place, float(value)) for place, value in enumerate(series.values) if is_known(value)]


def _runs(series: Series) -> list[list[tuple[int, float]]]:
    """Return the runs of known values with their positions: a gap stays a gap."""
    found: list[list[tuple[int, float]]] = []
    for place, value in _known(series):
        if not found or found[-1][-1][0] != place - 1:
            found.append([])
        found[-1].append((place, value))
    return found


def _columns(chart: Chart, top: float) -> list[str]:
    box = _upright(chart, max(whole_of(chart, place) for place in range(len(chart.labels))), top)
    column = box.column(chart.labels)
    width = min(56.0, column * 0.76) if column > 4 else column
    parts = _upright_axes(chart, box)
    for i in range(len(chart.labels)):
        below = 0.0
        for place, series in enumerate(chart.series):
            amount = amount_of(series, i)
            if amount:
                y = box.y(below + amount)
                x = box.left + (i + 0.5) * column - width / 2
                parts.append(rect(x, y, width, box.y(below) - y, series, place))
            below += amount
        whole = box.scale.short(below)
        if text_width(whole) <= column - 4:
            parts.append(text_at(box.left + (i + 0.5) * column, box.y(below) - 5, whole, "middle", soft=True))
    return parts + _column_hints(chart, box)


def _upright(chart: Chart, highest: float, top: float) -> _Box:
    scale = Scale.of(highest, chart.unit)
    left = widest([text for _, text in scale.ticks()]) + _GAP
    return _Box(left, top + (34 if axis_title(chart) else 12), WIDTH - _RIGHT, top + _HEIGHT - _BOTTOM, scale)


def _upright_axes(chart: Chart, box: _Box) -> list[str]:
    parts = [text_at(0, box.top - 18, axis_title(chart), "start", soft=True)]
    for value, text in box.scale.ticks():
        y = box.y(value)
        parts.append(line(box.left, y, box.right, y))
        parts.append(text_at(box.left - _GAP, y + 4, text, "end", soft=True))
    column = box.column(chart.labels)
    labels = [fitted(label, _LONGEST_LABEL) for label in chart.labels]
    every = max(1, math.ceil((widest(labels) + 4 * _GAP) / column))
    for place in range(0, len(labels), every):
        half = text_width(labels[place]) / 2
        # The first and the last are moved inwards rather than cut off.
        x = min(max(box.left + (place + 0.5) * column, half), WIDTH - half)
        parts.append(text_at(x, box.bottom + 18, labels[place], "middle"))
    return parts


def _column_hints(chart: Chart, box: _Box) -> list[str]:
    """Return the hints: over each label a strip with all its values."""
    if len(chart.labels) > _MOST_HINTS:
        return []
    column = box.column(chart.labels)
    size = f'y="{box.top:.1f}" width="{column:.1f}" height="{box.bottom - box.top:.1f}"'
    return [
        hint(f'x="{box.left + place * column:.1f}" {size}', chart, place, box.scale)
        for place in range(len(chart.labels))
    ]


def _rows(chart: Chart, top: float) -> tuple[float, list[str]]:
    """Return the height and the parts of horizontal bars, each with its label at the left and its total at its end."""
    of_whole = chart.kind == "shares"
    wholes = [whole_of(chart, place) for place in range(len(chart.labels))]
    amounts = Scale.of(max(wholes), chart.unit)
    labels = [fitted(label, _LONGEST_LABEL) for label in chart.labels]
    texts = [amounts.short(whole) for whole in wholes]
    top += 26 if axis_title(chart) else 2
    bottom = top + _ROW * len(labels)
    right = WIDTH - widest(texts) - _GAP
    box = _Box(widest(labels) + _GAP, top, right, bottom, Scale.of(1, "share") if of_whole else amounts)
    parts = [text_at(box.left, top - 12, axis_title(chart), "start", soft=True)]
    for value, text in box.scale.ticks():
        parts.append(line(box.x(value), box.top, box.x(value), bottom))
        parts.append(text_at(box.x(value), bottom + 18, text, "middle", soft=True))
    for i, whole in enumerate(wholes):
        y = box.top + i * _ROW + (_ROW - _THICKNESS) / 2
        end = box.left
        for place, series in enumerate(chart.series):
            amount = amount_of(series, i) / (whole or 1) if of_whole else amount_of(series, i)
            width = box.x(amount) - box.left
            if width:
                parts.append(rect(end, y, width, _THICKNESS, series, place))
            end += width
        parts.append(text_at(box.left - _GAP, y + 13, labels[i], "end"))
        parts.append(text_at(end + 6, y + 13, texts[i], "start", soft=True))
        place_of_row = f'x="0" y="{box.top + i * _ROW:.1f}" width="{WIDTH}" height="{_ROW}"'
        parts.append(hint(place_of_row, chart, i, amounts))
    return bottom + _BOTTOM, parts
