"""Charts: bars and lines as SVG, alone in a self-contained HTML file or inline on the status page.

Pure: numbers in, text out. Colours are CSS variables, so that a chart follows the page around it; the HTML file brings
values for light and dark. Every text that comes from outside is escaped.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from html import escape

_WIDTH, _HEIGHT = 760, 320
_LEFT, _RIGHT, _TOP, _BOTTOM = 70, 16, 34, 46
_COLOURS = 6


@dataclass(frozen=True, slots=True)
class Series:
    """One line of a chart, or one part of each stacked bar."""

    name: str
    values: Sequence[float]


@dataclass(frozen=True, slots=True)
class Chart:
    """A chart: `kind` is lines or bars (stacked); `labels` stand along the x axis; `unit` is that of the values."""

    title: str
    kind: str
    labels: Sequence[str]
    series: Sequence[Series]
    unit: str


def to_svg(chart: Chart) -> str:
    """Return a chart as an SVG element that takes its colours from --chart-1 to --chart-6, --ink and --grid."""
    draw = {"lines": _lines, "bars": _bars}[chart.kind]
    top = _highest(chart)
    parts = [
        f'<svg viewBox="0 0 {_WIDTH} {_HEIGHT}" role="img" xmlns="http://www.w3.org/2000/svg">',
        f"<title>{escape(chart.title)}</title>",
        *_axes(chart, top),
        *draw(chart, top),
        *_legend(chart),
        "</svg>",
    ]
    return "\n".join(parts)


def to_html(chart: Chart) -> str:
    """Return a page that needs nothing else, with the chart in light or dark as its reader has it."""
    return f"""<!doctype html>
<html lang="en"><head><meta charset="utf-8"><title>{escape(chart.title)}</title><style>
:root {{ color-scheme: light dark; --ink: #1d2630; --grid: #d8dee4; --back: #fff; --chart-1: #2563a8;
  --chart-2: #b4531a; --chart-3: #3a7d44; --chart-4: #8a3b8f; --chart-5: #8a6d00; --chart-6: #5b6570; }}
@media (prefers-color-scheme: dark) {{ :root {{ --ink: #e3e8ee; --grid: #3a444e; --back: #14191f; --chart-1: #6aa9ee;
  --chart-2: #ee9a63; --chart-3: #7cc487; --chart-4: #cf8fd4; --chart-5: #d8bb4a; --chart-6: #a3adb8; }} }}
body {{ margin: 2rem auto; max-width: 60rem; background: var(--back); color: var(--ink);
  font: 15px system-ui, sans-serif; }}
</style></head><body><h1>{escape(chart.title)}</h1>
{to_svg(chart)}
</body></html>
"""


def _highest(chart: Chart) -> float:
    if chart.kind == "bars":
        return max((sum(values) for values in zip(*(s.values for s in chart.series), strict=True)), default=0) or 1
    return max((value for series in chart.series for value in series.values), default=0) or 1


def _x(chart: Chart, place: float) -> float:
    return _LEFT + (_WIDTH - _LEFT - _RIGHT) * place / max(1, len(chart.labels))


def _y(value: float, top: float) -> float:
    return _HEIGHT - _BOTTOM - (_HEIGHT - _TOP - _BOTTOM) * value / top


def _axes(chart: Chart, top: float) -> list[str]:
    parts = []
    for step in range(5):
        value = top * step / 4
        y = _y(value, top)
        parts.append(f'<line x1="{_LEFT}" x2="{_WIDTH - _RIGHT}" y1="{y:.1f}" y2="{y:.1f}" stroke="var(--grid)"/>')
        parts.append(_text(_LEFT - 6, y + 4, f"{value:,.4g}", "end"))
    every = -(-len(chart.labels) // 8)
    for place in range(0, len(chart.labels), every or 1):
        label = chart.labels[place]
        short = label if len(label) <= 18 else f"{label[:17]}…"
        parts.append(_text(_x(chart, place + 0.5), _HEIGHT - _BOTTOM + 18, short, "middle"))
    parts.append(_text(4, _TOP - 14, chart.unit, "start"))
    return parts


def _text(x: float, y: float, text: str, anchor: str) -> str:
    return (
        f'<text x="{x:.1f}" y="{y:.1f}" font-size="12" fill="var(--ink)" text-anchor="{anchor}">{escape(text)}</text>'
    )


def _colour(place: int) -> str:
    return f"var(--chart-{place % _COLOURS + 1})"


def _lines(chart: Chart, top: float) -> list[str]:
    parts = []
    for place, series in enumerate(chart.series):
        points = " ".join(f"{_x(chart, i + 0.5):.1f},{_y(value, top):.1f}" for i, value in enumerate(series.values))
        parts.append(f'<polyline points="{points}" fill="none" stroke="{_colour(place)}" stroke-width="2"/>')
    return parts


def _bars(chart: Chart, top: float) -> list[str]:
    parts = []
    for i, label in enumerate(chart.labels):
        below = 0.0
        for place, series in enumerate(chart.series):
            value = series.values[i]
            y, width = _y(below + value, top), (_x(chart, 1) - _x(chart, 0)) * 0.8
            hint = f"<title>{escape(f'{label}, {series.name}: {value:,.4g} {chart.unit}')}</title>"
            parts.append(
                f'<rect x="{_x(chart, i + 0.1):.1f}" y="{y:.1f}" width="{width:.1f}" '
                f'height="{_y(below, top) - y:.1f}" fill="{_colour(place)}">{hint}</rect>'
            )
            below += value
    return parts


def _legend(chart: Chart) -> list[str]:
    parts = []
    for place, series in enumerate(chart.series):
        x = _LEFT + place * (_WIDTH - _LEFT - _RIGHT) / max(1, len(chart.series))
        parts.append(f'<rect x="{x:.1f}" y="{_HEIGHT - 16}" width="10" height="10" fill="{_colour(place)}"/>')
        parts.append(_text(x + 14, _HEIGHT - 7, series.name, "start"))
    return parts
