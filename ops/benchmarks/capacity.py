"""Check the prediction of `rotunda report capacity` for twice the load against a run with twice the load.

A broker gets small Produce requests at random times (Poisson arrivals), and then the same ones twice as fast; `rotunda
bench` sends each when it is due, even while others have no response yet. The report reads the request log of both runs:
the prediction for twice the load comes from the first, the actual figures from the second.
"""

import argparse
import json
import subprocess
import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from random import Random
from statistics import median
from typing import Any

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq

from ops.benchmarks import programs, report
from ops.benchmarks.programs import MeasurementError
from rotunda.broker.bench.profile import KNOWN_VERSION, REQUEST

CONNECTIONS, PARTITIONS, RECORD_BYTES = 16, 4, 200
#: Files of the request log are finished, and processes write down how busy they are, so often.
ROLL_MS = 1000
SETTINGS = (f"request.log.roll.ms={ROLL_MS}", f"request.log.roles.interval.ms={ROLL_MS}")
#: Cut off at both ends of a run, where the load has not yet, or no longer, its nominal rate.
EDGE = timedelta(seconds=1)
WARM_UP_S, DEADLINE_S, LOOK_S = 3.0, 60.0, 0.2
#: One window for a whole run: the load is the same all the time.
WINDOW = "1d"
ROLES = ("handler", "processor")
TITLES = ["requests/s", "what", "measured", "predicted for twice as many", "measured then", "error", "of each turn"]


@dataclass(frozen=True)
class Load:
    """How busy the roles are at a load, 0 to 1, and the mean wait for a handler in microseconds, None if endless."""

    utilisation: dict[str, float]
    wait_us: float | None


@dataclass(frozen=True)
class Turn:
    """A load, what the report expects of twice as much, and what that came to."""

    first: Load
    predicted: Load
    measured: Load


def measure(directory: Path, options: argparse.Namespace) -> str:
    """Measure each rate that is asked for, in turns, and return the table."""
    rates = [int(text) for text in options.capacity.split(",")]
    turns: dict[int, list[Turn]] = {rate: [] for rate in rates}
    for number in range(options.turns):
        for rate in rates:
            turns[rate].append(_turn(directory / f"turn-{number}-{rate}", rate, options))
            print(f"capacity: {rate} requests/s: {turns[rate][-1]}", flush=True)
    return report.markdown(TITLES, [row for rate, of_rate in turns.items() for row in figures(rate, of_rate)])


def _turn(directory: Path, rate: int, options: argparse.Namespace) -> Turn:
    directory.mkdir()
    profile = poisson_profile(directory / "profile.parquet", rate, 2 * options.seconds)
    with programs.broker(directory / "run", [*SETTINGS, *options.set]) as running:
        log = Path(running.status()["data_dir"]) / "request-log"

        def loaded(name: str, speed: int) -> tuple[Load, Load]:
            return _reported(log, directory / name, _send(running.port, profile, speed, options.seconds))

        _send(running.port, profile, 1, WARM_UP_S)
        first, predicted = loaded("first", 1)
        measured, _ = loaded("doubled", 2)
    return Turn(first, predicted, measured)


def poisson_profile(path: Path, rate: int, seconds: float) -> Path:
    """Write a load of Produce requests with one record each at random moments, and return the path."""
    chance, at_s, rows = Random(rate), 0.0, []  # noqa: S311 - nothing secret is drawn
    while (at_s := at_s + chance.expovariate(rate)) < seconds:
        connection = chance.randrange(CONNECTIONS)
        rows.append({
            "profileVersion": KNOWN_VERSION, "atUs": int(at_s * 1e6), "event": REQUEST, "connection": connection,
            "clientId": f"capacity-{connection}", "requestApiKey": 0, "requestApiKeyName": "PRODUCE",
            "requestApiVersion": 9, "topic": "capacity", "partition": connection % PARTITIONS, "partitionCount": 1,
            "records": 1, "recordBytes": RECORD_BYTES, "acks": -1, "repeat": 1,
        })  # fmt: skip
    pq.write_table(pa.Table.from_pylist(rows), path)
    return path


def _send(port: int, profile: Path, speed: int, seconds: float) -> tuple[datetime, int]:
    """Run the load of a profile against a broker; return when that began and how many Produce requests it had."""
    begin = datetime.now(UTC)
    arguments = ["--profile", str(profile), "--speed", str(speed), "--seconds", str(seconds), "--json"]
    done = json.loads(_run(programs.rotunda("bench", "--bootstrap", f"127.0.0.1:{port}", *arguments)))
    (produce,) = done["apis"]
    if produce["responses"] != produce["profile"] or produce["errors"]:
        raise MeasurementError(f"not every request of {profile} was served as recorded: {produce}")
    return begin, int(produce["responses"])


def _reported(log: Path, output: Path, sent: tuple[datetime, int]) -> tuple[Load, Load]:
    """Return the report's figures for the load that was sent: measured, and predicted for twice the load."""
    begin, end = (f"{time:%Y-%m-%dT%H:%M:%S.%f}" for time in _recorded(log, *sent))
    where = ["--input", str(log), "--output", str(output), "--rollups", str(output / "none"), "--master", "local[2]"]
    what = ["--from", begin, "--to", end, "--window", WINDOW, "--format", "json"]
    _run(programs.rotunda("report", "capacity", *where, *what))
    found = {(row["load"], row["role"]): row for row in _rows_of(output / "capacity")}

    def load(times: float, wait_us: float | None) -> Load:
        return Load({role: found[times, role]["utilisation"] for role in ROLES}, wait_us)

    model = _rows_of(output / "model")
    waited = sum(row["requests"] * row["measuredWaitUs"] for row in model) / sum(row["requests"] for row in model)
    return load(1, waited), load(2, found[2, "handler"].get("waitUs"))


def _recorded(log: Path, since: datetime, requests: int) -> tuple[datetime, datetime]:
    """Wait until all requests are in finished files; return the first and last time of them, without the edges."""
    sql = f"""SELECT count(*), epoch_us(min(time)), epoch_us(max(time)) FROM read_parquet('{log}/requests/**/*.parquet')
              WHERE requestApiKeyName = 'PRODUCE' AND epoch_us(time) >= {round(since.timestamp() * 1e6)}"""  # noqa: S608
    deadline = time.monotonic() + DEADLINE_S
    while time.monotonic() < deadline:
        time.sleep(LOOK_S)
        if not any(log.glob("requests/**/*.parquet")):
            continue
        with duckdb.connect() as connection:
            count, first_us, last_us = connection.execute(sql).fetchall()[0]
        if count == requests:
            begin, end = (datetime.fromtimestamp(us / 1e6, UTC) for us in (first_us, last_us))
            return begin + EDGE, end - EDGE
    raise MeasurementError(f"{log} has not got the rows of {requests} requests within {DEADLINE_S:g} s")


def _run(command: list[str]) -> str:
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=programs.REPOSITORY)
    if done.returncode:
        raise MeasurementError(f"{' '.join(command)}: {done.stderr.strip()[-500:]}")
    return done.stdout


def _rows_of(table: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for file in sorted(table.glob("*.json")) for line in file.read_text().splitlines()]


def figures(rate: int, turns: list[Turn]) -> list[list[str]]:
    """Return the rows of a rate: medians over its turns, and the error of each."""
    figures: dict[str, tuple[Callable[[Load], float | None], str]] = {
        f"{role}s busy": (_busy(role), ".1%") for role in ROLES
    }
    figures["mean wait for a handler, µs"] = (lambda load: load.wait_us, ",.0f")
    rows = []
    for what, (value, form) in figures.items():
        first, told, seen = ([value(load) for load in loads] for loads in zip(*map(_loads, turns), strict=True))
        errors = [one / other - 1 if one is not None and other else None for one, other in zip(told, seen, strict=True)]
        middles = [_text(each, form) for each in (first, told, seen)]
        rows.append([f"{rate:,}", what, *middles, _text(errors, "+.0%"), ", ".join(_text([e], "+.0%") for e in errors)])
    return rows


def _busy(role: str) -> Callable[[Load], float]:
    return lambda load: load.utilisation[role]


def _loads(turn: Turn) -> tuple[Load, Load, Load]:
    return turn.first, turn.predicted, turn.measured


def _text(values: list[float | None], form: str) -> str:
    """Return the median of the values that are not None."""
    known = [value for value in values if value is not None]
    return format(median(known), form) if known else "-"
