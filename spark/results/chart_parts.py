"""The parts of charts: the chart as its job describes it, and its marks, legend and hints as SVG. Pure.

Knows no axes: the caller has the positions. Colours are variables of the page, with the light theme's as a fallback.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from html import escape

from rotunda.spark.results.chart_scale import Scale, fitted, has_sizes, is_known, text_width

WIDTH = 720
COLOURS = ("#2f6f9f", "#c98a1b", "#8a5aa8", "#2f8f83", "#7d8b99", "#b0567a")
_LEGEND_ROW, _LEGEND_ROWS, _SWATCH = 20, 3, 10
_LONGEST_NAME = 170
#: Dash patterns that distinguish lines of one colour.
_DASHES = ("", "6 4", "2 3", "10 3 2 3")
_MOST_IN_HINT = 14


@dataclass(frozen=True, slots=True)
class Series:
    """One line of a chart, or one part of each stacked bar. None is an unknown value.

    `colour` is one of 1 to 6; the default is the position among the series.
    """

    name: str
    values: Sequence[float | None]
    colour: int | None = None


@dataclass(frozen=True, slots=True)
class Chart:
    """A chart: `labels` are along the x axis, `unit` is that of the values.

    `kind` is lines, bars (stacked), or shares (bars of equal length, with their total at the end). Values in µs, ms, s,
    B, bytes, B/s, bytes/s, % and share (0 to 1) are shown with a suitable prefix.
    """

    title: str
    kind: str
    labels: Sequence[str]
    series: Sequence[Series]
    unit: str


def amount_of(series: Series, place: int) -> float:
    """Return the length of a part of a bar: 0 for unknown and negative values."""
    value = series.values[place]
    return max(0.0, float(value)) if is_known(value) else 0.0


def whole_of(chart: Chart, place: int) -> float:
    """Return how long a bar is."""
    return sum(amount_of(series, place) for series in chart.series)


def hint(where: str, chart: Chart, place: int, scale: Scale) -> str:
    """Return the hint of a position: all values of a label, one per line."""
    values = ((series.name, series.values[place]) for series in chart.series)
    lines = [f"{fitted(name, 400)}: {scale.text(value)}" for name, value in values if is_known(value)]
    if len(lines) > _MOST_IN_HINT:
        lines[_MOST_IN_HINT:] = [f"and {len(lines) - _MOST_IN_HINT} more"]
    if chart.kind != "lines" and len(chart.series) > 1:
        lines.append(f"in all: {scale.text(whole_of(chart, place))}")
    text = escape("\n".join((fitted(chart.labels[place], 600), *lines)))
    return f'<rect class="chart-hint" {where} fill="var(--ink, #1a2129)" fill-opacity="0"><title>{text}</title></rect>'


def axis_title(chart: Chart) -> str:
    """Return the title of the values' axis, unless ticks or legend contain it."""
    name = chart.series[0].name if len(chart.series) == 1 else ""
    unit = "" if has_sizes(chart.unit) or chart.unit == name else chart.unit
    return fitted(", ".join(each for each in (name, unit) if each), WIDTH / 2)


def legend_of(chart: Chart) -> tuple[list[str], float]:
    """Return the names of the series, as many as fit into a few rows, and the height of the legend."""
    if len(chart.series) < 2:
        return [], 0.0
    parts: list[str] = []
    x, row = 0.0, 0
    for place, series in enumerate(chart.series):
        name = fitted(series.name, _LONGEST_NAME)
        width = _SWATCH + 6 + text_width(name) + 18
        more = f"and {len(chart.series) - place} more"
        is_last_row = row == _LEGEND_ROWS - 1
        if x + width > WIDTH - (text_width(more) if is_last_row and place < len(chart.series) - 1 else 0):
            if is_last_row:
                parts.append(text_at(x, row * _LEGEND_ROW + 14, more, "start", soft=True))
                break
            x, row = 0.0, row + 1
        y = row * _LEGEND_ROW + 5
        parts.append(_swatch(chart, series, place, x, y))
        parts.append(text_at(x + _SWATCH + 6, y + 9, name, "start"))
        x += width
    return parts, (row + 1) * _LEGEND_ROW + 6.0


def _swatch(chart: Chart, series: Series, place: int, x: float, y: float) -> str:
    if chart.kind != "lines":
        return rect(x, y, _SWATCH, _SWATCH, series, place)
    return (
        f'<line x1="{x - 2:.1f}" x2="{x + _SWATCH + 2:.1f}" y1="{y + 5:.1f}" y2="{y + 5:.1f}" '
        f'stroke="{colour_of(series, place)}" stroke-width="3"{dash_of(place)}/>'
    )


def rect(x: float, y: float, width: float, height: float, series: Series, place: int) -> str:
    """Return a part of a bar."""
    # The colours repeat, paler each time.
    paler = f' fill-opacity="{0.6 ** (place // len(COLOURS)):.2g}"' if place >= len(COLOURS) else ""
    return (
        f'<rect x="{x:.1f}" y="{y:.1f}" width="{width:.1f}" height="{height:.1f}" '
        f'fill="{colour_of(series, place)}"{paler}/>'
    )


def line(x1: float, y1: float, x2: float, y2: float) -> str:
    """Return a line of the grid."""
    return f'<line x1="{x1:.1f}" x2="{x2:.1f}" y1="{y1:.1f}" y2="{y2:.1f}" stroke="var(--grid, #dde1e6)"/>'


def text_at(x: float, y: float, text: str, anchor: str, *, soft: bool = False) -> str:
    """Return a text at a position; `soft` is for less important texts."""
    fill = "var(--soft, #56616e)" if soft else "var(--ink, #1a2129)"
    return f'<text x="{x:.1f}" y="{y:.1f}" fill="{fill}" text-anchor="{anchor}">{escape(text)}</text>'


def colour_of(series: Series, place: int) -> str:
    """Return the colour of a series, as a variable of the page."""
    number = (place if series.colour is None else series.colour - 1) % len(COLOURS)
    return f"var(--chart-{number + 1}, {COLOURS[number]})"


def dash_of(place: int) -> str:
    """Return the dash pattern that distinguishes a line from others of its colour."""
    dash = _DASHES[place // len(COLOURS) % len(_DASHES)]
    return f' stroke-dasharray="{dash}"' if dash else ""
