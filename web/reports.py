"""The reports: the latest result of each Spark job, as it lies below the data directory, and the jobs without one.

A result is parsed when it is new and somebody asks; otherwise a look costs a stat for each job. What lies there may be
anything: large, cut off, of another version, no file at all. Then the job is shown as unreadable, with the reason.
"""

from __future__ import annotations

import json
import math
import os
import shlex
import stat
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from web.chart import MOST_BYTES as MOST_CHART_BYTES
from web.chart import ChartRefused, sanitised

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from web.sources import Sources

#: The format of summaries that is known here, as spark/output.py writes it.
SUMMARY_VERSION = 1
MOST_BYTES = 2 * 1024 * 1024
MOST_TABLES, MOST_COLUMNS, MOST_ROWS, MOST_FACTS = 12, 64, 200, 100
LONGEST_CELL, LONGEST_TEXT = 300, 2000

#: The job whose headline stands on the overview.
DIAGNOSIS = "diagnose"

Cell = str | int | float | bool | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Brief:
    """A job and its latest result in short. `state` is none, there or unreadable, with the `reason` for the last.

    `command` makes the result anew. `stamp` differs for each result. What a job without a result lacks is None.
    """

    job: str
    question: str
    command: str
    state: str = "none"
    reason: str = ""
    stamp: str = ""
    headline: str | None = None
    certainty: str | None = None
    from_ms: int | None = None
    to_ms: int | None = None
    ended_ms: int | None = None
    took_s: float | None = None
    chart: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Table:
    """One table of a result, its first rows; texts are cut."""

    name: str
    columns: list[str]
    rows: list[list[Cell]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """A job and its latest result: what is known in short, its single numbers and its tables."""

    brief: Brief
    facts: dict[str, Cell] = field(default_factory=dict)
    tables: list[Table] = field(default_factory=list)


class _Unreadable(Exception):  # noqa: N818 - never leaves this module
    """A file is not what it should be; the text says why."""


class Reports:
    """The results below a directory, one for each job that there is."""

    def __init__(self, sources: Sources) -> None:
        self._directory = sources.reports
        self._empty = {
            name: Report(brief=Brief(job=name, question=question, command=_command(name, sources.facts.data_dir)))
            for name, question in sources.questions.items()
        }
        self._known: dict[str, Report] = {}
        self._charts: dict[str, tuple[str, str]] = {}

    def briefs(self) -> list[Brief]:
        """Return every job with its latest result in short."""
        return [self._report(name).brief for name in self._empty]

    def report(self, name: str) -> Report | None:
        """Return a job with its latest result; None if there is no job of that name."""
        return self._report(name) if name in self._empty else None

    def diagnosis(self) -> Brief | None:
        """Return what was last found to be wrong, if that was ever asked."""
        found = self.report(DIAGNOSIS)
        return found.brief if found is not None and found.brief.state == "there" else None

    def chart(self, name: str) -> str | None:
        """Return a job's chart as an SVG document that is safe to show; None if there is none. Raises ChartRefused."""
        if name not in self._empty:
            return None
        path = self._directory / name / "chart.svg"
        try:
            stamp = _stamp(path)
            if stamp is None:
                return None
            known = self._charts.get(name)
            if known is None or known[0] != stamp:
                known = self._charts[name] = stamp, sanitised(_read(path, MOST_CHART_BYTES))
        except (OSError, _Unreadable) as error:
            raise ChartRefused(_reason(error)) from None
        return known[1]

    def _report(self, name: str) -> Report:
        empty, path = self._empty[name], self._directory / name / "summary.json"
        try:
            stamp = _stamp(path)
        except OSError as error:
            return _unreadable(empty, _reason(error), "")
        if stamp is None:
            return empty
        known = self._known.get(name)
        if known is None or known.brief.stamp != stamp:
            try:
                known = _parsed(empty.brief, stamp, _read(path, MOST_BYTES))
            except (OSError, _Unreadable) as error:
                known = _unreadable(empty, _reason(error), stamp)
            self._known[name] = known
        return known


def _command(name: str, data_dir: str) -> str:
    return f"rotunda report {name} --data-dir {shlex.quote(data_dir)}"


def _stamp(path: Path) -> str | None:
    """Return what changes with a file; None if there is none. Raises OSError."""
    try:
        found = path.stat()
    except (FileNotFoundError, NotADirectoryError):
        return None
    return f"{found.st_mtime_ns:x}-{found.st_size:x}-{found.st_ino:x}"


def _read(path: Path, most: int) -> bytes:
    """Return a regular file that is no larger than `most`. Raises OSError and _Unreadable."""
    # A pipe must not keep anybody waiting until it is known for one.
    with open(os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC), "rb") as file:
        if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
            raise _Unreadable(f"{path.name} is not a file")
        content = file.read(most + 1)
    if len(content) > most:
        raise _Unreadable(f"{path.name} is larger than {most >> 20} MB")
    return content


def _unreadable(empty: Report, reason: str, stamp: str) -> Report:
    return Report(brief=replace(empty.brief, state="unreadable", reason=reason, stamp=stamp))


def _reason(error: Exception) -> str:
    return (error.strerror or "it cannot be read") if isinstance(error, OSError) else str(error)


def _parsed(empty: Brief, stamp: str, content: bytes) -> Report:
    try:
        summary = json.loads(content, parse_constant=lambda _: None)
    except (ValueError, RecursionError):
        raise _Unreadable("summary.json is not JSON, or was cut off") from None
    if not isinstance(summary, dict):
        raise _Unreadable("summary.json is not a summary")
    if summary.get("version") != SUMMARY_VERSION:
        wrong = _cell(summary.get("version"))
        raise _Unreadable(f"summary.json has version {wrong}; this page knows version {SUMMARY_VERSION}")
    if summary.get("job") != empty.job:
        raise _Unreadable(f"summary.json is of the job {_cell(summary.get('job'))}")
    try:
        return _report(empty, stamp, summary)
    except KeyError as error:
        raise _Unreadable(f"summary.json lacks {error}") from None
    except (TypeError, ValueError, AttributeError, OverflowError):
        raise _Unreadable("summary.json has values of another kind than it should") from None


def _report(empty: Brief, stamp: str, summary: dict[str, Any]) -> Report:
    chart = summary.get("chart")
    brief = replace(
        empty,
        command=_text(summary["command"]),
        state="there",
        stamp=stamp,
        headline=_text(summary["headline"]),
        certainty=_text(summary["certainty"]),
        from_ms=_time_ms(summary["from"]),
        to_ms=_time_ms(summary["to"]),
        ended_ms=_time_ms(summary["ended"]),
        took_s=_seconds(summary["tookS"]),
        chart=None if chart is None else _text(chart),
    )
    facts = [(_text(name), _cell(value)) for name, value in summary.get("facts", {}).items()]
    tables = [_table(name, table) for name, table in list(summary["tables"].items())[:MOST_TABLES]]
    return Report(brief=brief, facts=dict(facts[:MOST_FACTS]), tables=tables)


def _table(name: str, table: Mapping[str, Any]) -> Table:
    columns = [_text(column) for column in table["columns"][:MOST_COLUMNS]]
    rows = []
    for row in table["rows"][:MOST_ROWS]:
        if not isinstance(row, list) or len(row) != len(table["columns"]):
            raise ValueError
        rows.append([_cell(value) for value in row[:MOST_COLUMNS]])
    return Table(name=_text(name), columns=columns, rows=rows)


def _text(value: Any) -> str:
    if not isinstance(value, str):
        raise TypeError
    return _cut(value, LONGEST_TEXT)


def _cell(value: Any) -> Cell:
    """Return a value that any reader of JSON can read: no number beyond doubles, no long text, nothing nested."""
    if value is None or isinstance(value, bool):
        return value
    if isinstance(value, int):
        return value if abs(value) < 1 << 53 else str(value)
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    return _cut(value if isinstance(value, str) else json.dumps(value), LONGEST_CELL)


def _cut(text: str, longest: int) -> str:
    return text if len(text) <= longest else f"{text[: longest - 1]}…"


def _seconds(value: Any) -> float:
    seconds = float(value)
    if not math.isfinite(seconds):
        raise ValueError
    return seconds


def _time_ms(text: Any) -> int:
    time = datetime.fromisoformat(text)
    return int((time if time.tzinfo is not None else time.replace(tzinfo=UTC)).timestamp() * 1000)
