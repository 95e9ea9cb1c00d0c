"""The Spark jobs over logs of growing size, each compared with DuckDB for the same question on the same files.

Every job runs as its users start it, start of Java included, on two cores with Spark's driver of 2 GB. DuckDB has two
threads in this process; where SQL covers only part of a job, the row names the part. Both wall-clock and processor time
are printed, because the machine may be shared.
"""

import os
import shutil
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path

import duckdb
import psutil

from ops.benchmarks import cases, programs, questions, request_logs
from ops.benchmarks.report import Row
from rotunda.spark.analysis.objectives import read_objectives
from rotunda.spark.hourly.rollups import KEYS

CORES = 2
#: Seconds for 100 million rows, and for a second run over an unchanged log of any size.
SECONDS_AT_100_MILLION = 120
SECONDS_UNCHANGED = 15
#: Seconds for the first report on an hour of the log.
SECONDS_OF_AN_HOUR = 15
_LARGE = 100_000_000
_LOOK_S = 0.1
_OBJECTIVES = programs.REPOSITORY / "ops" / "objectives.toml"
_SPANS_S = (300, 1800, 3600, 6 * 3600, 3 * 86_400)

_COPY = "COPY ({sql}) TO '{file}'"
_LOG = "read_parquet('{log}/requests/**/*.parquet', hive_partitioning = true)"
_KEYS = ", ".join(KEYS)


@dataclass(frozen=True)
class Taken:
    """The time and memory of a run."""

    seconds: float
    cpu_seconds: float


@dataclass(frozen=True)
class Question:
    """A run of a job, and equivalent DuckDB statements; `asked` names the part they cover, if not all."""

    title: str
    job: str
    statements: tuple[str, ...] = ()
    options: tuple[str, ...] = ()
    asked: str = ""
    limit_s: float | None = None


def measure(directory: Path, rows: int, chosen: Sequence[str], add: Callable[[Row], None]) -> None:
    """Measure every job, or those whose titles contain one of the texts, over a log of this many rows."""
    root = directory / f"log-{rows}"
    log = root / "request-log"
    hours = request_logs.generate(log, rows)
    start = datetime.fromisoformat(request_logs.START)
    begin, end = (f"{time:%Y-%m-%dT%H:%M:%S}" for time in (start, start + timedelta(hours=hours)))
    where = ["--input", str(log), "--output", str(root / "out"), "--master", f"local[{CORES}]"]
    try:
        for each in questions_of(log, root, (begin, end), hours):
            if not cases.is_chosen(each.title, chosen):
                continue
            command = [sys.executable, "-m", "rotunda", "report", each.job, *where, "--from", begin, "--to", end]
            ours = _process([*command, *each.options])
            add(_row(each, rows, ours, _duckdb(*each.statements) if each.statements else None))
    finally:
        shutil.rmtree(root)


def questions_of(log: Path, root: Path, time_range: tuple[str, str], hours: int) -> Iterable[Question]:
    """Return the questions, in order: on the log, then with the hourly tables, and last on files that change."""

    def of(sql: str, dataset: str = "requests") -> str:
        return questions.of_range(log, dataset, time_range, sql)

    def copy(sql: str, name: str) -> str:
        return _COPY.format(sql=sql, file=root / f"duckdb-{name}.parquet")

    by_api = of(questions.LATENCY.format(by="one, requestApiKeyName", window=1))
    limit_s = SECONDS_OF_AN_HOUR if hours == 1 else None
    yield Question("latency from the log", "latency", (by_api,), limit_s=limit_s)
    skews = (dict(zip(("of", "topic", "member", "where"), each, strict=True)) for each in questions.SKEWS)
    moved = [questions.TRAFFIC.format(by=by) for by in ("topic", "topic, partition", "clientId")]
    moved += [questions.SKEW.format(**each) for each in skews]
    moved += [
        questions.BATCHES,
        questions.SAVINGS.format(lingers_ms="5, 20, 100", batch_bytes="16384, 131072, 1000000"),
    ]
    yield Question("traffic", "traffic", tuple(map(of, moved)))
    wrong = (each.format(gap_s=10, least=5) for each in (questions.BURSTS, questions.ERRORS))
    yield Question("errors", "errors", tuple(map(of, wrong)))
    lives = questions.LIVES.format(end=time_range[1], idle_s=600, idle_requests=1, short_s=5, looping=30)
    known = (questions.SOFTWARE, questions.VERSIONS, questions.DROPPED)
    yield Question("clients", "clients", (*map(of, known), of(lives, "connections")))
    yield Question("groups", "groups", (of(questions.MEMBERS, "groups"),), asked="members alone")
    yield Question("diagnose", "diagnose", (questions.FEATURES.format(log=log, window_s=60),), asked="features alone")
    yield Question("capacity", "capacity", (questions.QUEUES.format(log=log, window=60_000_000),), asked="queues alone")
    bounds = {"produce-bytes-per-second": 1e5, "fetch-bytes-per-second": 1e5, "request-percentage": 1}
    tried = tuple(f"--{name}={value:g}" for name, value in bounds.items())
    charges = questions.charges(log, time_range, ["clientId"], ["produce", "fetch", "request"])
    yield Question("quotas", "quotas", (charges,), tried, "rates alone")
    yield Question("slo", "slo", tuple(map(of, _kept(time_range[1]))), ("--objectives", str(_OBJECTIVES)))
    first = copy(of("SELECT * FROM r ORDER BY time, connection, correlationId LIMIT 100000"), "replay")
    yield Question("replay", "replay", (first, of(questions.REPLAYED)))
    source = {"log": _LOG.format(log=log), "keys": _KEYS}
    tables = {"requests": questions.ROLLED_UP, "latencies": questions.HISTOGRAMS}
    yield Question("rollup", "rollup", tuple(copy(sql.format(**source), name) for name, sql in tables.items()))
    yield Question("rollup, nothing new", "rollup", limit_s=SECONDS_UNCHANGED)
    yield Question("latency from rollups", "latency")
    compacted = copy(f"SELECT * FROM {_LOG.format(log=log)} ORDER BY date, hour, time", "compact")  # noqa: S608
    yield Question("compact", "compact", (compacted,))


def _kept(end: str) -> Iterable[str]:
    """Return the questions of the sample objectives: by minute, and over the last period that alerts examine."""
    for objective in read_objectives(str(_OBJECTIVES)):
        values = {name: ", ".join(f"'{value}'" for value in found) for name, found in objective.chosen.items()}
        chosen = " AND ".join(f"{name} IN ({found})" for name, found in values.items()) or "true"
        # The time that a Fetch is parked for records is not the broker's fault.
        bad = f"totalTimeUs - if(requestApiKeyName = 'FETCH', remoteTimeUs, 0) > {objective.latency_us}"
        if objective.latency_us is None:
            allowed = "".join(f" AND errorName <> '{name}'" for name in objective.allowed_errors)
            bad = f"errorCode <> 0{allowed}"
        what = {"chosen": chosen, "bad": bad, "end": end}
        yield questions.OBJECTIVE_BY_MINUTE.format(name=objective.name, budget=objective.budget, **what)
        for seconds in (*_SPANS_S, objective.window_us // 1_000_000):
            yield questions.OBJECTIVE.format(seconds=seconds, **what)


def _duckdb(*statements: str) -> Taken:
    before, begin = time.process_time(), time.monotonic()
    with duckdb.connect(config={"threads": CORES}) as connection:
        connection.execute("SET enable_progress_bar = false")
        for sql in statements:
            connection.execute(sql).fetchall()
    return Taken(time.monotonic() - begin, time.process_time() - before)


def _process(command: list[str]) -> Taken:
    """Run a program to its end. Raises MeasurementError when it fails."""
    begin = time.monotonic()
    running = subprocess.Popen(
        command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, cwd=programs.REPOSITORY
    )
    spent: dict[int, float] = {}
    watcher = threading.Thread(target=_watch, args=(psutil.Process(running.pid), spent))
    watcher.start()
    _, errors = running.communicate()
    seconds = time.monotonic() - begin
    watcher.join()
    if running.returncode:
        raise programs.MeasurementError(f"{' '.join(command)}: {errors[-500:]}")
    return Taken(seconds, sum(spent.values()))


def _watch(process: psutil.Process, spent: dict[int, float]) -> None:
    """Sample the processor time of a process and its children until it ends."""
    with suppress(psutil.NoSuchProcess):
        while process.is_running() and process.status() != psutil.STATUS_ZOMBIE:
            for each in [process, *process.children(recursive=True)]:
                with suppress(psutil.NoSuchProcess):
                    times = each.cpu_times()
                    spent[each.pid] = times.user + times.system
            time.sleep(_LOOK_S)


def _row(question: Question, rows: int, ours: Taken, theirs: Taken | None) -> Row:
    limit_s = question.limit_s
    if rows == _LARGE and question.job in ("rollup", "latency") and limit_s is None:
        limit_s = SECONDS_AT_100_MILLION
    load = os.getloadavg()[0]
    print(f"{question.title}, {rows:,} rows: {ours}, DuckDB {theirs}, load {load:.1f}", flush=True)
    short = limit_s is not None and ours.seconds > limit_s
    expected = "" if limit_s is None else f"≤ {limit_s:g} s" + (": falls short" if short else "")
    asked = f" ({question.asked})" if question.asked else ""
    return Row(
        f"{question.title}, {rows / 1e6:g} million rows",
        f"{rows / ours.seconds:,.0f} rows/s ({ours.seconds:.1f} s, of processors {ours.cpu_seconds:.1f} s)",
        "" if theirs is None else f"DuckDB{asked} {theirs.seconds:.1f} s, of processors {theirs.cpu_seconds:.1f} s",
        "" if theirs is None else f"{theirs.cpu_seconds / ours.cpu_seconds:.2f}",
        expected,
    )
