"""`rotunda requests`: prints single requests from the finished files of the request log.

Needs no running broker: it reads files. Only with --follow does it signal the recorder, by touching a file, that a
reader waits for new ones.
"""

from __future__ import annotations

import argparse
import json
import operator
import select
import sys
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from datetime import UTC, datetime
from functools import partial
from operator import itemgetter
from pathlib import Path
from typing import Any

from rotunda.broker.clock import SystemClock
from rotunda.broker.errors import RotundaError, UsageError
from rotunda.broker.request_log.log_reader import ATTEMPTS, Query, Row, files_of, files_since, highest, read, read_files
from rotunda.broker.request_log.part_files import COMPACTED, DIRECTORY, FOLLOWED
from rotunda.broker.runtime import run_dir
from rotunda.broker.text_table import aligned, quoted

_HEADERS = (
    "TIME", "API", "VERSION", "CLIENT", "ADDRESS", "TOPIC", "PARTITION", "ERROR", "BYTES IN", "BYTES OUT",
    "QUEUE", "LOCAL", "REMOTE", "RESPONSE", "SEND", "TOTAL US",
)  # fmt: skip
_COLUMNS = (
    "time", "requestApiKeyName", "requestApiVersion", "clientId", "address", "topic", "partition", "errorName",
    "requestBytes", "responseBytes", "requestQueueTimeUs", "localTimeUs", "remoteTimeUs", "responseQueueTimeUs",
    "sendTimeUs", "totalTimeUs",
)  # fmt: skip
_UNITS_S = {"s": 1, "m": 60, "h": 3600, "d": 86_400}
_LOOK_AGAIN_S = 0.5
_NOTHING = "no matching request in finished files; --follow shows requests at once, otherwise after request.log.roll.ms"


def run(parsed: argparse.Namespace, environment: Mapping[str, str]) -> int:
    """Print requests. Raises RotundaError when there is no request log, UsageError for a bad time."""
    root = _root(parsed, environment)
    query = _query(parsed, _time_us(parsed.since))
    if parsed.until is not None:
        query = query._replace(until_us=_time_us(parsed.until))
    if parsed.follow:
        _follow(root, parsed)
    rows = _first(root, query, "totalTimeUs" if parsed.slow else "time", parsed.limit)
    complaint = missing(root, query.since_us)
    if complaint:
        print(f"rotunda: {complaint}", file=sys.stderr)
    if not rows:
        print(f"rotunda: {_NOTHING}", file=sys.stderr)
    _print(rows if parsed.slow else rows[::-1], parsed)
    return 0


def _first(root: Path, query: Query, column: str, limit: int) -> list[Row]:
    """Return the rows with the highest values of a column, highest first."""
    for _ in range(ATTEMPTS):
        # A missing file was deleted by retention, or compacted into another: list the files again.
        with suppress(FileNotFoundError):
            return highest(files_of(root, "requests", query), "requests", query, column, limit)
    return []


def missing(root: Path, since_us: int) -> str:
    """Return a description of the missing rows of a time; empty without any."""
    gaps = read(root, "gaps", Query(since_us, {"dataset": lambda name: name == "requests"}))
    if not gaps:
        return ""
    known = sum(gap["rows"] or 0 for gap in gaps)
    more = " or more" if any(gap["rows"] is None for gap in gaps) else ""
    causes = ", ".join(sorted({gap["cause"] for gap in gaps}))
    return f"{known}{more} requests are missing from the log in this time: {causes}"


def _root(parsed: argparse.Namespace, environment: Mapping[str, str]) -> Path:
    if parsed.data_dir is not None:
        root = Path(parsed.data_dir) / DIRECTORY
    else:
        path = parsed.run_dir or run_dir.default_path(environment)
        record = run_dir.read(path)
        if record is None:
            raise run_dir.not_running(path, "or name a data directory with --data-dir")
        root = Path(record.data_dir) / DIRECTORY
    if not root.is_dir():
        raise RotundaError(f"no request log in {root}")
    return root


def _time_us(text: str) -> int:
    """Return a time as microseconds since the epoch: `10m` ago, or an ISO time, UTC by default."""
    number, unit = text[:-1], text[-1:]
    try:
        if unit in _UNITS_S and number.isascii() and number.isdecimal():
            # A time before 1970 means everything.
            return max(0, SystemClock().wall_ms() * 1000 - int(number) * _UNITS_S[unit] * 1_000_000)
        time = datetime.fromisoformat(text)
        if time.tzinfo is None:
            time = time.replace(tzinfo=UTC)
        return max(0, int(time.timestamp() * 1_000_000))
    except (ValueError, OverflowError):
        raise UsageError(f"{text!r} is neither a time like 2024-05-31T18:00 nor a length like 10m") from None


def _query(parsed: argparse.Namespace, since_us: int) -> Query:
    """Return the rows that the filter options select."""
    where: dict[str, Callable[[Any], bool]] = {}
    if parsed.slow:
        where["slow"] = bool
    if parsed.errors:
        where["errorCode"] = bool
    names = {"requestApiKeyName": parsed.api and parsed.api.upper(), "clientId": parsed.client, "topic": parsed.topic}
    where |= {column: partial(operator.eq, name) for column, name in names.items() if name is not None}
    return Query(since_us, where)


def _follow(root: Path, parsed: argparse.Namespace) -> None:
    """Print newly recorded requests, until interrupted."""
    query = _query(parsed, _time_us("0s"))
    seen: set[Path] = set()
    while True:
        (root / FOLLOWED).touch()
        finished = [path for path in files_since(root, "requests", query.since_us) if path not in seen]
        # Rows of compacted files were printed from the original files.
        fresh = [path for path in finished if not path.name.startswith(COMPACTED)]
        seen.update(finished)
        rows = read_files([path for path in fresh if path.exists()], "requests", query)
        if rows:
            _print_lines(sorted(rows, key=itemgetter("time")), parsed)
        select.select((), (), (), _LOOK_AGAIN_S)


def _print(rows: list[Row], parsed: argparse.Namespace) -> None:
    if parsed.json:
        print(json.dumps([_plain(row) for row in rows], indent=1))
        return
    print("\n".join(aligned(_HEADERS, [_cells(row) for row in rows])))


def _print_lines(rows: Iterable[Row], parsed: argparse.Namespace) -> None:
    """Print rows immediately: without headers, or as one JSON object a line."""
    if parsed.json:
        lines = [json.dumps(_plain(row)) for row in rows]
    else:
        lines = aligned(_HEADERS, [_cells(row) for row in rows])[1:]
    print("\n".join(lines), flush=True)


def _plain(row: Row) -> dict[str, Any]:
    return {**row, "time": row["time"].isoformat()}


def _cells(row: Row) -> list[str | int | None]:
    cells: list[str | int | None] = []
    for name in _COLUMNS:
        value = row[name]
        if name == "time":
            cells.append(value.isoformat(timespec="milliseconds").removesuffix("+00:00"))
        else:
            cells.append(quoted(value) if isinstance(value, str) else value)
    return cells
