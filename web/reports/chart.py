"""A sanitised chart: an SVG document rewritten from allowed drawing elements and attributes. Pure.

The page includes the chart inline, so that it follows the theme and shows its hints; so it must not contain anything
that runs, loads or styles something else. Everything not listed here is removed, and colours are variables of the page.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING
from xml.parsers import expat
from xml.sax.saxutils import escape, quoteattr

if TYPE_CHECKING:
    from collections.abc import Mapping

MOST_BYTES = 1024 * 1024
MOST_ELEMENTS = 20_000
_MOST_DEPTH = 20

_SVG = "http://www.w3.org/2000/svg"
_SHAPES = {"svg", "g", "title", "desc", "rect", "line", "polyline", "polygon", "path", "circle", "text", "tspan"}

_NUMBERS = re.compile(r"[-+0-9.eE, ]{1,100000}")
_PATH = re.compile(r"[-+0-9.eE, MmLlHhVvCcSsQqTtAaZz]{1,100000}")
_PAINT = re.compile(r"none|transparent|currentColor|#[0-9a-fA-F]{3,8}|var\(--[a-z0-9-]+(, *#[0-9a-fA-F]{3,8})?\)")
_WORDS = re.compile(r"[\w ,.-]{1,200}")
_TRANSFORM = re.compile(r"((translate|rotate|scale)\([-+0-9.eE, ]{1,80}\) ?){1,3}")

_ATTRIBUTES: Mapping[str, re.Pattern[str]] = {
    **dict.fromkeys(
        ("x", "y", "x1", "y1", "x2", "y2", "width", "height", "cx", "cy", "r", "rx", "ry", "dx", "dy", "viewBox",
         "points", "opacity", "fill-opacity", "stroke-opacity", "stroke-width", "stroke-dasharray", "font-size",
         "font-weight"), _NUMBERS,
    ),
    **dict.fromkeys(("fill", "stroke"), _PAINT),
    **dict.fromkeys(
        ("role", "text-anchor", "dominant-baseline", "stroke-linecap", "stroke-linejoin", "font-family",
         "pointer-events", "fill-rule", "aria-hidden"), _WORDS,
    ),
    "class": re.compile(r"chart(-[a-z]+)*( chart(-[a-z]+)*)*"),
    "aria-label": re.compile(r".{1,300}", re.DOTALL),
    "d": _PATH,
    "transform": _TRANSFORM,
}  # fmt: skip


class InvalidChart(Exception):  # noqa: N818 - named for what is the case
    """A file is not a valid chart; the text is the reason."""


def sanitised(document: bytes) -> str:
    """Return a chart as an SVG document with drawing elements only. Raises InvalidChart."""
    if len(document) > MOST_BYTES:
        raise InvalidChart(f"the chart is larger than {MOST_BYTES >> 20} MB")
    writer = _Writer()
    parser = expat.ParserCreate("utf-8", namespace_separator=" ")
    parser.buffer_text = True
    parser.StartElementHandler = writer.start
    parser.EndElementHandler = writer.end
    parser.CharacterDataHandler = writer.text
    parser.StartDoctypeDeclHandler = writer.doctype
    try:
        parser.Parse(document, True)
    except expat.ExpatError:
        raise InvalidChart("the chart is not XML") from None
    if not writer.parts:
        raise InvalidChart("the chart is not SVG")
    return "".join(writer.parts) + "\n"


class _Writer:
    """Handles a parser's events and copies allowed elements; the content of other elements is removed."""

    def __init__(self) -> None:
        self.parts: list[str] = []
        self._open: list[str] = []
        self._left_out = 0
        self._elements = 0

    def doctype(self, *_: object) -> None:
        # No entities, and so no expansion attacks.
        raise InvalidChart("the chart declares a document type")

    def start(self, name: str, attributes: dict[str, str]) -> None:
        namespace, _, local = name.rpartition(" ")
        self._elements += 1
        if self._elements > MOST_ELEMENTS or len(self._open) > _MOST_DEPTH:
            raise InvalidChart("the chart has more elements than can be shown")
        is_root = not self._open and not self._left_out
        if self._left_out or namespace != _SVG or local not in _SHAPES or (local == "svg") != is_root:
            self._left_out += 1
            return
        kept = "".join(
            f" {key}={quoteattr(value)}"
            for key, value in attributes.items()
            if key in _ATTRIBUTES and _ATTRIBUTES[key].fullmatch(value)
        )
        space = f' xmlns="{_SVG}"' if is_root else ""
        self.parts.append(f"<{local}{space}{kept}>")
        self._open.append(local)

    def end(self, _name: str) -> None:
        if self._left_out:
            self._left_out -= 1
        else:
            self.parts.append(f"</{self._open.pop()}>")

    def text(self, text: str) -> None:
        if not self._left_out and self._open and self._open[-1] in {"text", "tspan", "title", "desc"}:
            self.parts.append(escape(text))
