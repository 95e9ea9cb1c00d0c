"""Measure the broker against the ruler and print one table; `--record` also writes it to docs/performance.md.

Every case runs the same load against the broker and `bare`, alternately; the figure is the median ratio of the turns.
`--against-kafka` adds Apache Kafka. `--crowds` compares a broker with thousands of connections with the same broker
without them. `--capacity` checks the capacity report's prediction for twice the load against a run at twice the load.
Exit status 1 when a figure is below the one expected on 2 cores, 2 when a program failed.
"""

import argparse
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from statistics import median
from typing import NamedTuple

from ops.benchmarks import (
    against_kafka,
    capacity,
    cases,
    comparison,
    crowds,
    idle,
    programs,
    report,
    reports,
    turns,
    watched,
)
from ops.benchmarks.report import SHORT, UNITS, Row

PAGE = programs.REPOSITORY / "docs" / "performance.md"
PARTITIONS = 4
E2E_RECORD_BYTES = 100


def main() -> int:
    """Run the measurements of the command line; return the exit status."""
    options = parse_options()
    try:
        with tempfile.TemporaryDirectory(prefix="rotunda-bench-", dir=options.dir) as name:
            measured = measure(Path(name), options)
    except programs.MeasurementError as failure:
        print(f"ops/bench: {failure}", file=sys.stderr)
        return 2
    surroundings = report.surroundings(programs.REPOSITORY)
    print(f"\n{surroundings}\n\n{measured.tables}")
    if options.record:
        record = report.record_rows if options.case or measured.failed else report.record
        record(PAGE, measured.part, surroundings, measured.tables)
    return 2 if measured.failed else int(SHORT in measured.tables)


class Measured(NamedTuple):
    """The tables in Markdown, their part of the page, and the titles of failed cases."""

    tables: str
    part: report.Part
    failed: Sequence[str] = ()


def measure(directory: Path, options: argparse.Namespace) -> Measured:
    """Run the chosen measurements. Raises MeasurementError."""
    rows: list[Row] = []
    if options.spark:
        for millions in options.spark.split(","):
            reports.measure(directory, round(float(millions) * 1e6), options.case, rows.append)
        return Measured(report.table(rows), report.FIGURES)
    if options.capacity:
        return Measured(capacity.measure(directory, options), report.FIGURES)
    programs.build(directory)
    if options.crowds:
        measure_crowds(directory, options, rows.append)
        return Measured(report.table(rows), report.CROWDS)
    if options.against_kafka:
        found, failed = against_kafka.measure(directory, options)
        return Measured(comparison.tables(found), report.AGAINST_KAFKA, failed)
    every = (measure_start, measure_load, measure_groups, measure_request_log, measure_history, measure_watched)
    for each in every:
        each(directory, options, rows.append)
    return Measured(report.table(rows), report.FIGURES)


def parse_options() -> argparse.Namespace:
    """Return the command line's options."""
    parser = argparse.ArgumentParser(prog="ops/bench", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--against-kafka", action="store_true", help="against Apache Kafka as well, which is brought")
    parser.add_argument("--seconds", type=float, help="length of one load (default 2, with --capacity 30)")
    parser.add_argument("--turns", type=int, help="how often each load runs (default 3, against Kafka 5)")
    parser.add_argument("--warm-up", type=float, default=20.0, help="seconds of load that Kafka has first (default 20)")
    parser.add_argument(
        "--case", action="append", default=[], help="only cases whose title contains this text; may be repeated"
    )
    parser.add_argument("--set", action="append", default=[], metavar="KEY=VALUE", help="broker setting")
    parser.add_argument("--dir", default=None, help="where data is written during the run")
    parser.add_argument("--spark", metavar="MILLIONS", help="only the Spark jobs, over logs of so many rows: 1,10,100")
    parser.add_argument(
        "--capacity", metavar="RATES", help="only the report on capacity, of so many requests a second: 100,400"
    )
    parser.add_argument(
        "--crowds", action="store_true", help="only thousands of connections that do nothing, drip, or come and go"
    )
    parser.add_argument(
        "--record", action="store_true", help="rewrite the figures in docs/performance.md, with --case only their rows"
    )
    options = parser.parse_args()
    if options.record and (options.spark or options.capacity):
        parser.error("--record excludes --spark and --capacity: their tables are not on the page")
    if bool(options.spark) + bool(options.capacity) + options.against_kafka + options.crowds > 1:
        parser.error("--spark, --capacity, --against-kafka and --crowds exclude each other: leave all but one out")
    if options.seconds is None:
        options.seconds = 30.0 if options.capacity else 2.0
    if options.turns is None:
        options.turns = 5 if options.against_kafka else 3
    if options.turns < 1 or options.seconds <= 0:
        parser.error(
            f"--turns {options.turns} --seconds {options.seconds:g}: there is at least one turn, of some length"
        )
    return options


def measure_start(directory: Path, options: argparse.Namespace, add: Callable[[Row], None]) -> None:
    """Cold starts: process start to ready line, and to the first acknowledged record."""
    if not cases.is_chosen("cold start", options.case):
        return
    ready, acknowledged = [], []
    for number in range(options.turns):
        with programs.broker(directory / f"start-{number}", options.set) as running:
            begin = time.monotonic()
            programs.kload(directory, "first", running.port, ["first"])
            ready.append(running.ready_seconds)
            acknowledged.append(running.ready_seconds + time.monotonic() - begin)
    add(plain_row("cold start: ready", median(ready), "s", cases.READY_SECONDS))
    add(
        plain_row(
            "cold start: first record acknowledged",
            median(acknowledged),
            "s",
            cases.FIRST_ACKNOWLEDGED_SECONDS,
        )
    )


def measure_load(directory: Path, options: argparse.Namespace, add: Callable[[Row], None]) -> None:
    """Run all measurements that need only one running broker."""
    with programs.broker(directory / "load", options.set) as running:
        if cases.is_chosen("idle", options.case):
            pids = running.pids()
            cpu_percent = idle.idle_cpu_percent(pids, 5.0)
            add(plain_row("idle: processor time", cpu_percent, "% of a core", cases.IDLE_CPU_PERCENT))
            add(plain_row("idle: memory (PSS)", idle.memory_mb(pids), "MB", cases.IDLE_MEMORY_MB))
        # First, before megabytes of dirty pages are being written to the disk.
        if cases.is_chosen("produce to fetch", options.case):
            measure_latency(directory, options, running.port, add)
        for number, case in enumerate(cases.CASES):
            if cases.is_chosen(case.title, options.case):
                add(measure_case(directory, options, running.port, number))


def measure_case(directory: Path, options: argparse.Namespace, port: int, number: int) -> Row:
    """Measure one case, broker and ruler alternately; the row holds the medians."""
    case, topic = cases.CASES[number], f"case-{number}"
    if case.command != "api":
        programs.kload(directory, "create", port, [topic, str(PARTITIONS)])
    if case.fill:
        fill = [topic, str(PARTITIONS), str(PARTITIONS), "1", "0.5", *case.fill]
        programs.kload(directory, "produce", port, fill)
    arguments = case.kload_arguments(topic, PARTITIONS, options.seconds)
    ours, theirs = [], []
    for _ in range(options.turns):
        ours.append(programs.kload(directory, case.command, port, arguments)[case.unit])
        with programs.bare(directory, case.ruler, case.ruler_bytes) as ruler:
            theirs.append(programs.kload(directory, case.command, ruler.port, arguments)[case.unit])
        print(f"{case.title}: {ours[-1]:,.0f} against {theirs[-1]:,.0f} {case.unit}", flush=True)
    ratio = median(our / their for our, their in zip(ours, theirs, strict=True))
    return Row(
        case.title,
        f"{median(ours):,.0f} {UNITS[case.unit]}",
        f"bare {case.ruler} {median(theirs):,.0f}",
        f"{ratio:.2f}",
        "" if case.expected_ratio is None else verdict(f"≥ {case.expected_ratio}", ratio >= case.expected_ratio),
    )


def measure_groups(directory: Path, options: argparse.Namespace, add: Callable[[Row], None]) -> None:
    """Small Produce with and without the heartbeats and commits of many groups, on a broker of its own."""
    if not cases.is_chosen("beside groups", options.case):
        return
    with programs.broker(directory / "groups", options.set) as running:
        for offsets in cases.OFFSETS_PER_COMMIT:
            measure_beside_groups(directory, options, running.port, offsets, add)


def measure_beside_groups(
    directory: Path, options: argparse.Namespace, port: int, offsets: int, add: Callable[[Row], None]
) -> None:
    """Measure small Produce while groups commit this many offsets."""
    case, topic = cases.BESIDE_GROUPS, f"beside-groups-{offsets}"
    programs.kload(directory, "create", port, [topic, str(PARTITIONS)])
    arguments = case.kload_arguments(topic, PARTITIONS, options.seconds / turns.PER_LOAD)
    load = [topic, str(cases.GROUPS), str(cases.GROUP_CONNECTIONS), str(cases.HEARTBEAT_MS)]
    load += [str(cases.COMMITS_PER_SECOND), str(offsets)]
    with programs.gload(directory, port, load) as groups:

        def alone() -> float:
            return programs.kload(directory, case.command, port, arguments)[case.unit]

        def beside() -> float:
            with groups.busy():
                found = alone()
            print(f"beside groups: {found:,.0f} {case.unit}", flush=True)
            return found

        alone()
        ours, others = turns.alternate(turns.count(options.turns), beside, alone)
    requests = f"{offsets} to a request" if offsets > 1 else "a request each"
    commits = f"{cases.COMMITS_PER_SECOND:,} offsets committed a second, {requests}"
    title = f"{case.title}, beside {cases.GROUPS:,} groups with {commits}"
    add(turns_row(title, case, f"without {median(others):,.0f}", ours, turns.ratio(ours, others)))


def measure_request_log(directory: Path, options: argparse.Namespace, add: Callable[[Row], None]) -> None:
    """Measure the cost of the request log: two brokers that differ only in it."""
    chosen = [case for case in cases.REQUEST_LOG if cases.is_chosen(f"request log: {case.title}", options.case)]
    if not chosen:
        return
    off = [*options.set, "request.log.enable=false"]
    with (
        programs.broker(directory / "log-on", options.set) as with_log,
        programs.broker(directory / "log-off", off) as without,
    ):
        for case in chosen:
            measure_against(directory, options, case, (with_log, without), add)


def measure_against(
    directory: Path,
    options: argparse.Namespace,
    case: cases.Case,
    brokers: tuple[programs.RunningBroker, programs.RunningBroker],
    add: Callable[[Row], None],
) -> None:
    """One case against two brokers."""
    for broker in brokers:
        programs.kload(directory, "create", broker.port, ["log", str(PARTITIONS)])
        rate_and_cost_us(directory, options, case, broker)
    measured = partial(rate_and_cost_us, directory, options, case)
    found = turns.alternate(turns.count(options.turns), *(partial(measured, broker) for broker in brokers))
    (rates, costs), (other_rates, other_costs) = (tuple(zip(*each, strict=True)) for each in found)
    rate, cost = turns.ratio(rates, other_rates), turns.ratio(costs, other_costs)
    print(f"request log: {case.title}: {rate:.3f} of the rate, {cost:.3f} of the processor time", flush=True)
    title = f"{case.title}, request log on against off (processor time {cost:.2f})"
    add(turns_row(title, case, f"off {median(other_rates):,.0f}", rates, rate))


def rate_and_cost_us(
    directory: Path, options: argparse.Namespace, case: cases.Case, broker: programs.RunningBroker
) -> tuple[float, float]:
    """Run a turn of a case; return its rate, and the processor time of all processes by request or megabyte."""
    seconds = options.seconds / turns.PER_LOAD
    arguments, pids = case.kload_arguments("log", PARTITIONS, seconds), broker.pids()
    before_ns = idle.cpu_ns(pids)
    rate = programs.kload(directory, case.command, broker.port, arguments)[case.unit]
    return rate, (idle.cpu_ns(pids) - before_ns) / 1000 / rate / seconds


def measure_history(directory: Path, options: argparse.Namespace, add: Callable[[Row], None]) -> None:
    """Measure the cost of the history: a broker that records it in every second turn."""
    case = cases.HISTORY
    title = f"{case.title}, history on against off: processor time"
    if not cases.is_chosen(title, options.case):
        return
    with programs.broker(directory / "history", options.set) as running:
        programs.kload(directory, "create", running.port, ["log", str(PARTITIONS)])

        def cost_us(retention_ms: int) -> float:
            running.configure(f"history.retention.ms={retention_ms}")
            return rate_and_cost_us(directory, options, case, running)[1]

        cost_us(-1)
        costs, without = turns.alternate(turns.count(options.turns), partial(cost_us, -1), partial(cost_us, 0))
    ratio, most = turns.ratio(costs, without), case.expected_ratio or 0
    print(f"{title}: {ratio:.4f}", flush=True)
    values = f"{median(costs):.2f} µs a request", f"off {median(without):.2f}"
    add(Row(title, *values, f"{ratio:.3f}", verdict(f"≤ {most:g}", ratio <= most)))


def turns_row(title: str, case: cases.Case, other: str, rates: Sequence[float], ratio: float) -> Row:
    """Return the row of a case that was measured alternately with another load."""
    reached = verdict(f"≥ {case.expected_ratio}", ratio >= (case.expected_ratio or 0))
    return Row(title, f"{median(rates):,.0f} {UNITS[case.unit]}", other, f"{ratio:.2f}", reached)


def measure_watched(directory: Path, options: argparse.Namespace, add: Callable[[Row], None]) -> None:
    """Measure the cost of the status page for the broker while browsers watch; its own process is not counted."""
    title = f"status page, {cases.BROWSERS} browsers"
    if not cases.is_chosen(title, options.case):
        return
    case, arguments = cases.WATCHED, cases.WATCHED.kload_arguments("watched", PARTITIONS, options.seconds)
    with programs.broker(directory / "watched", [*options.set, "status.port=0"]) as running:
        programs.kload(directory, "create", running.port, ["watched", str(PARTITIONS)])
        found = watched.measure(
            running,
            cases.BROWSERS,
            2 * options.turns,
            lambda: programs.kload(directory, case.command, running.port, arguments),
        )
    limit = cases.WATCHED_CPU_PERCENT
    print(f"{title}: {found.added:.2f} % of a core added, the page itself {found.page:.1f} %", flush=True)
    add(
        Row(
            f"{title}: processor time added to the broker (the page's own process: {found.page:.1f} %)",
            f"{found.added:.2f} % of a core",
            f"without {found.alone:.1f}",
            "",
            verdict(f"≤ {limit:g} % of a core", found.added <= limit),
        )
    )


def measure_crowds(directory: Path, options: argparse.Namespace, add: Callable[[Row], None]) -> None:
    """Measure the cost of connections that are idle, slow, or opened and closed in quick succession."""
    silent, dripping = (
        f"{cases.SILENT:,} silent connections",
        f"{cases.DRIPPING:,} connections that send a byte a second",
    )
    coming = f"{cases.COMING:,} connections opened and closed a second for {cases.COMING_SECONDS:g} s"
    with programs.broker(directory / "crowds", options.set) as running:
        programs.kload(directory, "create", running.port, ["crowds", str(PARTITIONS)])

        def figure(case: cases.Case, name: str) -> float:
            arguments = case.kload_arguments("crowds", PARTITIONS, options.seconds)
            return programs.kload(directory, case.command, running.port, arguments)[name]

        if cases.is_chosen(silent, options.case):
            used_kb = crowds.memory_of_a_connection(running, cases.SILENT)
            add(plain_row(f"{silent}: memory of each (PSS)", used_kb, "KB", cases.SILENT_KB))
            case = cases.BESIDE_SILENT
            found = crowds.in_turns(
                lambda: crowds.silent(running.port, cases.SILENT), lambda: figure(case, "req_s"), options.turns
            )
            title = f"{case.title}, beside {silent}"
            add(turns_row(title, case, f"without {found.alone:,.0f}", [found.beside], found.beside / found.alone))
        if cases.is_chosen(dripping, options.case):
            case = cases.BESIDE_DRIPPING
            found = crowds.in_turns(
                lambda: crowds.dripping(running.port, cases.DRIPPING), lambda: figure(case, "p99_us"), options.turns
            )
            growth, most = found.beside / found.alone, case.expected_ratio or 0
            title = f"{case.title}, 500 requests/s, beside {dripping}: p99"
            values = f"{found.beside:,.0f} µs", f"without {found.alone:,.0f}"
            add(Row(title, *values, f"{growth:.2f}", verdict(f"≤ {most:g}", growth <= most)))
        if cases.is_chosen(coming, options.case):
            made, left = crowds.come_and_go(running, cases.COMING, cases.COMING_SECONDS)
            add(Row(f"{coming}: descriptors left", f"{left} of {made:,}", "", "", verdict("0", left == 0)))


def measure_latency(directory: Path, options: argparse.Namespace, port: int, add: Callable[[Row], None]) -> None:
    """Produce until a parked long-polling fetch sees it."""
    programs.kload(directory, "create", port, ["latency", "1"])
    arguments = ["latency", "1", str(options.seconds), str(E2E_RECORD_BYTES)]
    runs = [programs.kload(directory, "e2e", port, arguments) for _ in range(options.turns)]
    p50_us = median(run["p50_us"] for run in runs)
    p99_us = median(run["p99_us"] for run in runs)
    add(plain_row("produce to fetch, p50", p50_us, "µs", cases.PRODUCE_TO_FETCH_P50_US))
    add(Row("produce to fetch, p99", f"{p99_us:,.0f} µs", "", "", ""))


def plain_row(title: str, value: float, unit: str, limit: float) -> Row:
    """Return the row of a figure that has a limit of its own instead of a ruler."""
    print(f"{title}: {value:.3g} {unit}", flush=True)
    return Row(title, f"{value:.3g} {unit}", "", "", verdict(f"≤ {limit:g} {unit}", value <= limit))


def verdict(expected: str, reached: bool) -> str:
    """Return the expectation, marked when it was not met."""
    return expected if reached else f"{expected}: {SHORT}"


if __name__ == "__main__":
    sys.exit(main())
