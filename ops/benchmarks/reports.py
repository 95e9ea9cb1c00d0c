"""The Spark jobs over logs of growing size, each beside DuckDB with the same question on the same files.

Every job runs as its users start it, start of Java included, on two cores with Spark's driver of 2 GB. DuckDB has two
threads in this process. Processor time stands beside the time on the clock, because the machine may be shared.
"""

import os
import shutil
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path

import duckdb
import psutil

from ops.benchmarks import programs, request_logs
from ops.benchmarks.report import Row

CORES = 2
#: Seconds for 100 million rows, and for a second run over an unchanged log of any size.
SECONDS_AT_100_MILLION = 120
SECONDS_UNCHANGED = 15
_LARGE = 100_000_000
_LOOK_S = 0.1

_KEYS = """date, hour, requestApiKey, requestApiKeyName, requestApiVersion, clientId, softwareName, softwareVersion,
 topic, listener, errorCode, errorName"""
_PHASES = ("requestQueueTimeUs", "localTimeUs", "remoteTimeUs", "responseQueueTimeUs", "sendTimeUs", "totalTimeUs")
_SUMS = ", ".join(
    f"sum({name} * sampleWeight::BIGINT) AS {name}"
    for name in ("requestBytes", "responseBytes", "records", "recordBytes", "throttleTimeUs", *_PHASES)
)
#: As spark/histogram.py has it: 32 buckets for each power of two of nanoseconds.
_BUCKET = """CASE WHEN {0} * 1000 < 64 THEN {0} * 1000
 ELSE (floor(log2({0} * 1000 + 0.5))::BIGINT - 5) * 32 + (({0} * 1000) >> (floor(log2({0} * 1000 + 0.5))::BIGINT - 5))
 END"""
_SUMS_BY = "SELECT {keys}, sum(sampleWeight) AS requests, {sums} FROM {log} GROUP BY ALL"
_COUNTS_BY = """SELECT {keys}, phase, bucket, sum(sampleWeight) AS requests FROM
 (UNPIVOT (SELECT {keys}, sampleWeight, {buckets} FROM {log}) ON {phases} INTO NAME phase VALUE bucket) GROUP BY ALL"""
_LATENCY = """WITH rows AS (FROM {log}),
 counts AS (SELECT requestApiKeyName AS api, {bucket} AS bucket, sum(sampleWeight) AS n FROM rows GROUP BY ALL),
 ranked AS (SELECT *, sum(n) OVER (PARTITION BY api ORDER BY bucket) AS below, sum(n) OVER (PARTITION BY api) AS whole
  FROM counts),
 found AS (SELECT api, {quantiles} FROM ranked GROUP BY api),
 sums AS (SELECT requestApiKeyName AS api, sum(sampleWeight), {sums} FROM rows GROUP BY ALL)
SELECT * FROM found JOIN sums USING (api)"""
_COPY = "COPY ({sql}) TO '{file}'"
_LOG = "read_parquet('{log}/requests/**/*.parquet', hive_partitioning = true)"


@dataclass(frozen=True)
class Taken:
    """What a run took."""

    seconds: float
    cpu_seconds: float


def measure(directory: Path, rows: int, add: Callable[[Row], None]) -> None:
    """Measure every job over a log of so many rows."""
    root = directory / f"log-{rows}"
    log = root / "request-log"
    hours = request_logs.generate(log, rows)
    start = datetime.fromisoformat(request_logs.START)
    time_range = ["--from", start.isoformat(), "--to", (start + timedelta(hours=hours)).isoformat()]

    def job(name: str, *more: str) -> Taken:
        where = ["--input", str(log), "--output", str(root / "out"), "--master", f"local[{CORES}]"]
        return _process([sys.executable, "-m", "broker", "report", name, *where, *time_range, *more])

    questions = _questions(log, root)
    try:
        raw = job("latency", "--rollups", str(root / "none"))
        add(_row("latency from the log", rows, raw, _duckdb(*questions["latency"])))
        add(_row("rollup", rows, job("rollup"), _duckdb(*questions["rollup"])))
        add(_row("rollup, nothing new", rows, job("rollup"), None, SECONDS_UNCHANGED))
        add(_row("latency from rollups", rows, job("latency"), None))
    finally:
        shutil.rmtree(root)


def _questions(log: Path, root: Path) -> dict[str, tuple[str, ...]]:
    source = _LOG.format(log=log)
    sums = _SUMS_BY.format(keys=_KEYS, sums=_SUMS, log=source)
    buckets = ", ".join(f"{_BUCKET.format(phase)} AS {phase}" for phase in _PHASES)
    counts = _COUNTS_BY.format(keys=_KEYS, buckets=buckets, log=source, phases=", ".join(_PHASES))
    quantiles = ", ".join(f"min(bucket) FILTER (below >= ceil(whole * {q}))" for q in (0.5, 0.95, 0.99, 0.999))
    by_api = _LATENCY.format(bucket=_BUCKET.format("totalTimeUs"), log=source, quantiles=quantiles, sums=_SUMS)
    tables = (
        _COPY.format(sql=sql, file=root / f"duckdb-{number}.parquet") for number, sql in enumerate((sums, counts))
    )
    return {"rollup": tuple(tables), "latency": (by_api,)}


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
    """Keep the processor time of a process and its children until it ends."""
    while process.is_running() and process.status() != psutil.STATUS_ZOMBIE:
        for each in [process, *process.children(recursive=True)]:
            try:
                times = each.cpu_times()
            except psutil.NoSuchProcess:
                continue
            spent[each.pid] = times.user + times.system
        time.sleep(_LOOK_S)


def _row(title: str, rows: int, ours: Taken, theirs: Taken | None, limit_s: float | None = None) -> Row:
    if limit_s is None and rows == _LARGE and theirs is not None:
        limit_s = SECONDS_AT_100_MILLION
    load = os.getloadavg()[0]
    print(f"{title}, {rows:,} rows: {ours}, DuckDB {theirs}, load {load:.1f}", flush=True)
    short = limit_s is not None and ours.seconds > limit_s
    expected = "" if limit_s is None else f"≤ {limit_s:g} s" + (": falls short" if short else "")
    return Row(
        f"{title}, {rows // 1_000_000} million rows",
        f"{rows / ours.seconds:,.0f} rows/s ({ours.seconds:.1f} s, of processors {ours.cpu_seconds:.1f} s)",
        "" if theirs is None else f"DuckDB {theirs.seconds:.1f} s, of processors {theirs.cpu_seconds:.1f} s",
        "" if theirs is None else f"{theirs.cpu_seconds / ours.cpu_seconds:.2f}",
        expected,
    )
