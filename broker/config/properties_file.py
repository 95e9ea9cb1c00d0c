"""Reads a ``.properties`` file the way Kafka's own tools do. Pure text in, pairs out; knows no key.

The grammar is that of Java's Properties: ``key=value``, ``key: value`` or ``key value``, comments that open
with ``#`` or ``!``, a backslash at the end of a line that continues it, and backslash escapes.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import NamedTuple

_PAIR = re.compile(r"((?:\\.|[^\\=:\s])*)\s*[=:]?\s*(.*)", re.DOTALL)
_ESCAPE = re.compile(r"\\(u[0-9a-fA-F]{4}|.)", re.DOTALL)
_CONTROLS = {"t": "\t", "n": "\n", "r": "\r", "f": "\f"}


class Property(NamedTuple):
    """One pair of a properties file and the line, from 1, on which it begins."""

    name: str
    value: str
    line: int


def parse_properties(text: str) -> list[Property]:
    """Return every pair of the file in order; a duplicate name is returned twice."""
    properties = []
    for number, logical_line in _logical_lines(text):
        match = _PAIR.fullmatch(logical_line)
        if match:
            properties.append(Property(_unescape(match[1]), _unescape(match[2]), number))
    return properties


def _logical_lines(text: str) -> Iterator[tuple[int, str]]:
    pending, first = "", 0
    for number, raw in enumerate(text.splitlines(), start=1):
        line = raw.lstrip()
        if not pending and (not line or line[0] in "#!"):
            continue
        first = first or number
        if _ends_in_continuation(line):
            pending += line[:-1]
            continue
        yield first, pending + line
        pending, first = "", 0
    if pending:
        yield first, pending


def _ends_in_continuation(line: str) -> bool:
    """Return whether the line ends in an odd number of backslashes: the last one is not itself escaped."""
    return (len(line) - len(line.rstrip("\\"))) % 2 == 1


def _unescape(text: str) -> str:
    return _ESCAPE.sub(_replacement, text)


def _replacement(match: re.Match[str]) -> str:
    escaped = match[1]
    if len(escaped) == 5:
        return chr(int(escaped[1:], 16))
    return _CONTROLS.get(escaped, escaped)
