"""Measure the broker and print one table; `--record` also writes it to docs/performance.md.

Without further options: its start, its idle processes, and the cost of its options.
Exit status 1 when a figure is not the one expected on 2 cores, 2 when a program failed.
"""

import argparse
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from statistics import median
from typing import NamedTuple

from ops.benchmarks import cases, comparison, options, processor_time, programs, rates, report, reports
from ops.benchmarks.report import SHORT, Row, verdict
from ops.broker import REPOSITORY, Broker, ProgramError

PAGE = REPOSITORY / "docs" / "performance.md"
IDLE_SECONDS = 5.0


def main() -> int:
    parsed = parse_options()
    try:
        with tempfile.TemporaryDirectory(prefix="rotunda-bench-", dir=parsed.dir) as name:
            measured = measure(Path(name), parsed)
    except ProgramError as failure:
        print(f"ops/bench: {failure}", file=sys.stderr)
        return 2
    surroundings = report.surroundings(REPOSITORY)
    print(f"\n{surroundings}\n\n{measured.tables}")
    if parsed.record:
        record = report.record_rows if parsed.case or measured.failed else report.record
        record(PAGE, measured.part, surroundings, measured.tables)
    return 2 if measured.failed else int(SHORT in measured.tables)


class Measured(NamedTuple):
    """The tables in Markdown, their part of the page, and the titles of failed cases."""

    tables: str
    part: report.Part
    failed: Sequence[str] = ()


def measure(directory: Path, parsed: argparse.Namespace) -> Measured:
    """Run the chosen measurements. Raises ProgramError."""
    rows: list[Row] = []
    if parsed.spark:
        for millions in parsed.spark.split(","):
            reports.measure(directory, round(float(millions) * 1e6), parsed.case, rows.append)
        return Measured(report.table(rows), report.FIGURES)
    programs.build(directory)
    if parsed.rates or parsed.against_kafka:
        found, failed = rates.measure(directory, parsed)
        return Measured(comparison.tables(found), report.AGAINST_KAFKA, failed)
    if parsed.crowds:
        options.measure_crowds(directory, parsed, rows.append)
        return Measured(report.table(rows), report.CROWDS)
    for each in (measure_start, measure_idle, options.measure_options, options.measure_watched):
        each(directory, parsed, rows.append)
    return Measured(report.table(rows), report.FIGURES)


def parse_options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="ops/bench", description=(__doc__ or "").splitlines()[0])
    what = parser.add_mutually_exclusive_group()
    what.add_argument("--rates", action="store_true", help="only the rates, beside those of the least server in C")
    what.add_argument("--against-kafka", action="store_true", help="the rates against Apache Kafka, which is brought")
    what.add_argument(
        "--crowds", action="store_true", help="only thousands of connections that do nothing, drip, or come and go"
    )
    what.add_argument("--spark", metavar="MILLIONS", help="only the Spark jobs, over logs of so many rows: 1,10,100")
    parser.add_argument("--seconds", type=float, default=2.0, help="length of one load (default 2)")
    parser.add_argument("--turns", type=int, help="how often each load runs (default 3, against Kafka 5)")
    parser.add_argument("--warm-up", type=float, default=20.0, help="seconds of load that Kafka has first (default 20)")
    parser.add_argument(
        "--case", action="append", default=[], help="only cases whose title contains this text; may be repeated"
    )
    parser.add_argument("--set", action="append", default=[], metavar="KEY=VALUE", help="broker setting")
    parser.add_argument("--dir", default=None, help="where data is written during the run")
    parser.add_argument(
        "--record", action="store_true", help="rewrite the figures in docs/performance.md, with --case only their rows"
    )
    parsed = parser.parse_args()
    if parsed.record and (parsed.spark or parsed.rates):
        parser.error("--record excludes --spark and --rates: their tables are not on the page")
    if parsed.turns is None:
        parsed.turns = 5 if parsed.against_kafka else 3
    if parsed.turns < 1 or parsed.seconds <= 0:
        parser.error(f"--turns {parsed.turns} --seconds {parsed.seconds:g}: there is at least one turn, of some length")
    parsed.set = dict(pair.split("=", 1) for pair in parsed.set)
    return parsed


def measure_start(directory: Path, parsed: argparse.Namespace, add: Callable[[Row], None]) -> None:
    """Cold starts: process start to ready line, and to the first acknowledged record."""
    if not cases.is_chosen("cold start", parsed.case):
        return
    ready, acknowledged = [], []
    for number in range(parsed.turns):
        with Broker(directory / f"start-{number}", parsed.set) as running:
            begin = time.monotonic()
            programs.kload(directory, "first", running.port, ["first"])
            ready.append(running.ready_seconds)
            acknowledged.append(running.ready_seconds + time.monotonic() - begin)
    add(plain_row("cold start: ready", median(ready), "s", cases.READY_SECONDS))
    title = "cold start: first record acknowledged"
    add(plain_row(title, median(acknowledged), "s", cases.FIRST_ACKNOWLEDGED_SECONDS))


def measure_idle(directory: Path, parsed: argparse.Namespace, add: Callable[[Row], None]) -> None:
    """Measure the processor time and the memory of a broker without clients."""
    if not cases.is_chosen("idle", parsed.case):
        return
    with Broker(directory / "idle", parsed.set) as running:
        cpu_percent = processor_time.idle_percent(running.pids(), IDLE_SECONDS)
        memory_mb = running.memory().total() / (1 << 20)
    add(plain_row("idle: processor time", cpu_percent, "% of a core", cases.IDLE_CPU_PERCENT))
    add(plain_row("idle: memory (PSS)", memory_mb, "MB", cases.IDLE_MEMORY_MB))


def plain_row(title: str, value: float, unit: str, limit: float) -> Row:
    """Return the row of a figure that has a limit of its own instead of a ruler."""
    print(f"{title}: {value:.3g} {unit}", flush=True)
    return Row(title, f"{value:.3g} {unit}", "", "", verdict(f"≤ {limit:g} {unit}", value <= limit))


if __name__ == "__main__":
    sys.exit(main())
