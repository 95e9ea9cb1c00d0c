"""A job's result from its summary: converts arbitrary JSON to plain values that can be shown. Pure."""

from __future__ import annotations

import json
import math
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping

#: The supported format of summaries, as written by spark/results/output.py.
SUMMARY_VERSION = 1
MOST_TABLES, MOST_COLUMNS, MOST_ROWS, MOST_FACTS = 12, 64, 200, 100
LONGEST_CELL, LONGEST_TEXT = 300, 2000

Cell = str | int | float | bool | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Brief:
    """A job and its latest result in short. `state` is none, there or unreadable, with the `reason` for the last.

    `command` computes the result again. `stamp` differs for each result. Fields without a value are None.
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
    """A job and its latest result: its short form, single numbers and tables."""

    brief: Brief
    facts: dict[str, Cell] = field(default_factory=dict)
    tables: list[Table] = field(default_factory=list)


class Unreadable(Exception):  # noqa: N818 - named for what is the case
    """A file is not a valid summary; the text is the reason."""


def parsed(empty: Brief, stamp: str, content: bytes) -> Report:
    """Return the summary of the job that `empty` names. Raises Unreadable."""
    try:
        summary = json.loads(content, parse_constant=lambda _: None)
    except (ValueError, RecursionError):
        raise Unreadable("summary.json is not JSON, or was cut off") from None
    if not isinstance(summary, dict):
        raise Unreadable("summary.json is not a summary")
    if summary.get("version") != SUMMARY_VERSION:
        wrong = _cell(summary.get("version"))
        raise Unreadable(f"summary.json has version {wrong}; this page knows version {SUMMARY_VERSION}")
    if summary.get("job") != empty.job:
        raise Unreadable(f"summary.json is of the job {_cell(summary.get('job'))}")
    try:
        return _report(empty, stamp, summary)
    except KeyError as error:
        raise Unreadable(f"summary.json lacks {error}") from None
    except (TypeError, ValueError, AttributeError, OverflowError):
        raise Unreadable("summary.json has values of another kind than it should") from None


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
    facts = list(summary.get("facts", {}).items())[:MOST_FACTS]
    single = {_text(name): _cell(value) for name, value in facts if not _is_table(value)}
    tables = list(summary["tables"].items()) + [(name, _as_table(value)) for name, value in facts if _is_table(value)]
    return Report(brief=brief, facts=single, tables=[_table(name, table) for name, table in tables[:MOST_TABLES]])


def _is_table(value: Any) -> bool:
    return isinstance(value, list) and bool(value) and all(isinstance(each, dict) for each in value)


def _as_table(rows: list[dict[str, Any]]) -> dict[str, Any]:
    return {"columns": list(rows[0]), "rows": [[row.get(column) for column in rows[0]] for row in rows]}


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
    """Return a value that any reader of JSON accepts: no number beyond doubles, no long text, nothing nested."""
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
