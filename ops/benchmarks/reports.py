"""The Spark jobs over logs of growing size: the time of each, as its users start it, start of Java included.

On two cores, with Spark's driver of 2 GB.
"""

import shutil
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path

from ops.benchmarks import cases, request_logs
from ops.benchmarks.report import Row, verdict
from ops.broker import REPOSITORY, output_of, rotunda

CORES = 2
#: Seconds for 100 million rows, and for a second run over an unchanged log of any size.
SECONDS_AT_100_MILLION = 120
SECONDS_UNCHANGED = 15
#: Seconds for the first report on an hour of the log.
SECONDS_OF_AN_HOUR = 15
_LARGE = 100_000_000
_OBJECTIVES = REPOSITORY / "ops" / "objectives.toml"
_BOUNDS = ("--produce-bytes-per-second=100000", "--fetch-bytes-per-second=100000", "--request-percentage=1")


@dataclass(frozen=True)
class Run:
    """A run of a job."""

    title: str
    job: str
    options: tuple[str, ...] = ()


#: In this order: on the log, then with the hourly tables, and last on files that change.
RUNS = (
    Run("latency from the log", "latency"),
    Run("traffic", "traffic"),
    Run("errors", "errors"),
    Run("clients", "clients"),
    Run("groups", "groups"),
    Run("diagnose", "diagnose"),
    Run("capacity", "capacity"),
    Run("quotas", "quotas", _BOUNDS),
    Run("slo", "slo", ("--objectives", str(_OBJECTIVES))),
    Run("replay", "replay"),
    Run("rollup", "rollup"),
    Run("rollup, nothing new", "rollup"),
    Run("latency from rollups", "latency"),
    Run("compact", "compact"),
)


def measure(directory: Path, rows: int, chosen: Sequence[str], add: Callable[[Row], None]) -> None:
    """Measure every run, or those whose titles contain one of the texts, over a log of this many rows."""
    root = directory / f"log-{rows}"
    log = root / "request-log"
    hours = request_logs.generate(log, rows)
    start = datetime.fromisoformat(request_logs.START)
    begin, end = (f"{each:%Y-%m-%dT%H:%M:%S}" for each in (start, start + timedelta(hours=hours)))
    where = ["--input", str(log), "--output", str(root / "out"), "--master", f"local[{CORES}]"]
    try:
        for each in RUNS:
            if cases.is_chosen(each.title, chosen):
                begun = time.monotonic()
                output_of(rotunda("report", each.job, *where, "--from", begin, "--to", end, *each.options))
                add(_row(each.title, rows, time.monotonic() - begun, _limit_s(each, rows, hours)))
    finally:
        shutil.rmtree(root)


def _limit_s(run: Run, rows: int, hours: int) -> float | None:
    """Return the most seconds for a run, if there is a bound."""
    if run.title == "rollup, nothing new":
        return SECONDS_UNCHANGED
    if run.job == "latency" and hours == 1:
        return SECONDS_OF_AN_HOUR
    return SECONDS_AT_100_MILLION if rows == _LARGE and run.job in ("rollup", "latency") else None


def _row(title: str, rows: int, seconds: float, limit_s: float | None) -> Row:
    print(f"{title}, {rows:,} rows: {seconds:.1f} s", flush=True)
    expected = "" if limit_s is None else verdict(f"≤ {limit_s:g} s", seconds <= limit_s)
    figure = f"{seconds:.1f} s, {rows / seconds:,.0f} rows/s"
    return Row(f"{title}, {rows / 1e6:g} million rows", figure, "", "", expected)
