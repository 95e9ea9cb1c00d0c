"""`rotunda requests`: prints single requests from the finished files of the request log.

Needs no running broker: it reads files. Only with --follow does it signal the recorder, by touching a file, that a
reader waits for new ones.
"""

from __future__ import annotations

import argparse
import json
import math
import operator
import re
import select
import sys
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from datetime import UTC, datetime
from functools import cache, lru_cache, partial
from operator import itemgetter
from pathlib import Path
from typing import Any

from rotunda.broker.clock import SystemClock
from rotunda.broker.errors import RotundaError, UsageError
from rotunda.broker.request_log.file_reader import (
    ATTEMPTS,
    Found,
    Order,
    Query,
    Row,
    files_since,
    read,
    read_files,
    search,
)
from rotunda.broker.request_log.part_files import COMPACTED, DIRECTORY, FOLLOWED
from rotunda.broker.runtime import run_dir
from rotunda.broker.text_table import aligned, counted, quoted

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
#: Client ids are chosen by clients, so there may be any number of them.
_CACHED_NAMES = 10_000
_NOTHING = "no matching request; new requests are in the log after request.log.roll.ms, and at once with --follow"


def run(parsed: argparse.Namespace, environment: Mapping[str, str]) -> int:
    """Print requests. Raises RotundaError when there is no request log, UsageError for a bad time."""
    root = _root(parsed, environment)
    query = _query(parsed, _time_us(parsed.since))
    if parsed.until is not None:
        query = query._replace(until_us=_time_us(parsed.until))
    if parsed.follow:
        _follow(root, parsed)
    order = Order("totalTimeUs" if parsed.slow else "time", parsed.limit)
    found = _search(root, query, order, parsed.timeout)
    for line in (missing(root, query.since_us), _searched(found, query, order, parsed.timeout)):
        if line:
            print(f"rotunda: {line}", file=sys.stderr)
    if not found.rows:
        print(f"rotunda: {_NOTHING}", file=sys.stderr)
    _print(found.rows if parsed.slow else found.rows[::-1], parsed)
    return 0


def _search(root: Path, query: Query, order: Order, timeout_s: float | None) -> Found:
    """Return the first rows in an order, of the files that can be read within the time limit."""
    clock = SystemClock()
    deadline_ns = math.inf if timeout_s is None else clock.monotonic_ns() + timeout_s * 1e9
    for _ in range(ATTEMPTS):
        # A missing file was deleted by retention, or compacted into another: list the files again.
        with suppress(FileNotFoundError):
            return search(root, "requests", query, order, lambda: clock.monotonic_ns() > deadline_ns)
    return Found([], 0, query.since_us)


def _searched(found: Found, query: Query, order: Order, timeout_s: float | None) -> str:
    """Return a line with the number of searched rows and their time; a request with a weight is one row."""
    since = datetime.fromtimestamp(found.since_us / 1e6, UTC).isoformat(timespec="seconds").removesuffix("+00:00")
    line = f"searched {counted(found.read, 'recorded request')} since {since}"
    if len(found.rows) == order.limit:
        return f"{line}; --limit {order.limit} is reached, more may match"
    if found.since_us > query.since_us:
        return f"{line}; older ones need more than --timeout {timeout_s:g}"
    return line


def missing(root: Path, since_us: int) -> str:
    """Return a description of the missing rows of a time; empty without any."""
    gaps = read(root, "gaps", Query(since_us, {"dataset": lambda name: name == "requests"}))
    if not gaps:
        return ""
    known = counted(sum(gap["rows"] or 0 for gap in gaps), "request")
    more = " or more" if any(gap["rows"] is None for gap in gaps) else ""
    causes = ", ".join(sorted({gap["cause"] for gap in gaps}))
    return f"missing from the log in this time: {known}{more}, {causes}"


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
    if parsed.errors or parsed.error:
        where["errorCode"] = bool
    if parsed.slower_than is not None:
        where["totalTimeUs"] = partial(operator.le, parsed.slower_than * 1000)
    patterns = {
        "clientId": parsed.client,
        "topic": parsed.topic,
        "errorName": parsed.error and parsed.error.upper(),
        "principal": parsed.user and f"User:{parsed.user}",
    }
    where |= {column: _condition(pattern) for column, pattern in patterns.items() if pattern is not None}
    if parsed.api is not None:
        # ListOffsets, list_offsets and LIST_OFFSETS are the same.
        fits = _condition(_plain_name(parsed.api))
        where["requestApiKeyName"] = cache(lambda name: fits(_plain_name(name)))
    return Query(since_us, where)


def _plain_name(api: str) -> str:
    return api.replace("_", "").upper()


def _condition(pattern: str) -> Callable[[str | None], bool]:
    """Return the condition that a value is this text, or, with `*` for any text, matches in either case."""
    if "*" not in pattern:
        return partial(operator.eq, pattern)
    fits = re.compile(".*".join(map(re.escape, pattern.split("*"))), re.IGNORECASE | re.DOTALL).fullmatch
    return lru_cache(_CACHED_NAMES)(lambda value: value is not None and fits(value) is not None)


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
