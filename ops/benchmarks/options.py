"""The cost of options, of the status page and of connections: a load beside them and without, in short turns.

The cost of an option is the processor time of a request, which unlike a rate does not depend on how busy the machine is
otherwise. One that can be changed at any time is switched on and off, as two brokers differ by some per cent.
"""

import argparse
import time
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from statistics import median

from ops.benchmarks import cases, crowds, processor_time, programs, turns
from ops.benchmarks.cases import MEGABYTE_RECORDS, PARTITIONS, Case, small_produce
from ops.benchmarks.report import UNITS, Row, verdict
from ops.benchmarks.watched import browsers
from ops.broker import Broker

#: A change is in force within a second.
IN_FORCE_S = 1.2
TOPIC = "options"
#: Limits that are far away, of every kind.
LIMITS = {
    "max.connections": 100_000,
    "max.connections.per.ip": 100_000,
    "max.connections.per.ip.overrides": "127.0.0.1:90000",
    "max.connection.creation.rate": 100_000,
    "connection.refusal.rate": 100_000,
    "overload.queue.time.ms": 10_000,
    "broker.quota.produce.bytes": 10**11,
    "broker.quota.fetch.bytes": 10**11,
    "broker.quota.request.rate": 10**8,
    "automq.retry.storm.backoff.enabled": "true",
}
QUOTAS = (
    *("producer_byte_rate=100000000000", "consumer_byte_rate=100000000000", "request_percentage=100000"),
    "controller_mutation_rate=100000",
)
#: The user of the load, and others without connections.
PRINCIPALS = ("User:ANONYMOUS", *(f"User:{number}" for number in range(100)))
ALLOWED = tuple(word for principal in PRINCIPALS for word in ("--allow-principal", principal))
AUTHORIZER = {
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "allow.everyone.if.no.acl.found": "true",
}

SMALL_PRODUCE = small_produce(64, 1)
#: The words of one of the broker's commands.
Command = tuple[str, ...]


@dataclass(frozen=True)
class Option:
    """An option, the commands that switch it on and off, and the most processor time with it, to that without.

    One with `settings` exists from a broker's start or not at all.
    """

    title: str
    most: float
    on: tuple[Command, ...]
    off: tuple[Command, ...]
    case: Case = SMALL_PRODUCE
    settings: Mapping[str, str] = field(default_factory=dict)


def switch(setting: str) -> tuple[Command, ...]:
    return (("config", "set", setting),)


REQUEST_LOG = tuple(
    Option("request log", 1.03, switch("request.log.enable=true"), switch("request.log.enable=false"), case)
    for case in (
        small_produce(64, 1),
        small_produce(64, 16),
        Case("1 MB Produce, 4 connections", "produce", 4, 1, MEGABYTE_RECORDS, "append", "mb_s"),
    )
)
OPTIONS = (
    *REQUEST_LOG,
    Option("history", 1.005, switch("history.retention.ms=-1"), switch("history.retention.ms=0")),
    Option(
        "limits that nobody meets",
        1.03,
        on=(
            ("quota", "set", "--default", "client-id", *QUOTAS),
            ("config", "set", *(f"{name}={value}" for name, value in LIMITS.items())),
        ),
        off=(("quota", "delete", "--default", "client-id"), ("config", "delete", *LIMITS)),
    ),
    Option(
        "ACLs",
        1.03,
        on=(("acl", "add", "--producer", "--topic", TOPIC, *ALLOWED),),
        off=(),
        settings=AUTHORIZER,
    ),
)

#: Processor time that this many browsers on the status page add, at 500 requests/s of 64 connections: their cost
#: depends on the number of connections and not on the rate.
WATCHED = Case("", "produce", 64, 1, ("1", "100", "1", "500"), "echo", "req_s")
BROWSERS = 20
WATCHED_CPU_PERCENT = 1.0

#: With this many idle connections: KB of each, and the remaining share of small Produce.
SILENT = 10_000
SILENT_KB = 10.0
KEPT_BESIDE_SILENT = 0.9
#: With this many connections that send a byte a second: factor by which the 99th percentile of small Produce grows.
DRIPPING = 5_000
BESIDE_DRIPPING = Case("small Produce, 4 connections", "produce", 4, 1, ("1", "100", "1", "500"), "echo", "req_s")
GROWTH_BESIDE_DRIPPING = 2.0
#: Connections that are opened and closed in a second, and for how many seconds.
COMING = 1_000
COMING_SECONDS = 60.0

Add = Callable[[Row], None]


def measure_options(directory: Path, options: argparse.Namespace, add: Add) -> None:
    for number, option in enumerate(OPTIONS):
        title = f"{option.case.title}, with {option.title} to without: processor time"
        if not cases.is_chosen(title, options.case):
            continue
        with ExitStack() as running:
            one = running.enter_context(Broker(directory / f"with-{number}", {**options.set, **option.settings}))
            other = one
            if option.settings:
                other = running.enter_context(Broker(directory / f"without-{number}", options.set))
            for broker in {one, other}:
                programs.kload(directory, "create", broker.port, [TOPIC, str(PARTITIONS)])
            load = partial(cost_us, directory, option.case, options.seconds / turns.PER_LOAD)
            with_it, without = partial(load, one, option.on), partial(load, other, option.off)
            # The first turn is not counted.
            with_it()
            costs, others = turns.alternate(turns.count(options.turns), with_it, without)
        ratio = turns.ratio(costs, others)
        print(f"{title}: {ratio:.4f}", flush=True)
        values = f"{median(costs):.2f} µs a request", f"without {median(others):.2f}"
        add(Row(title, *values, f"{ratio:.3f}", verdict(f"≤ {option.most:g}", ratio <= option.most)))


def cost_us(directory: Path, case: Case, seconds: float, broker: Broker, commands: tuple[Command, ...]) -> float:
    """Run the commands, then a load; return the processor time of all processes by request."""
    for command in commands:
        broker.rotunda(*command)
    if commands:
        time.sleep(IN_FORCE_S)
    pids = broker.pids()
    before_ns = processor_time.nanoseconds(pids)
    found = programs.kload(directory, case.command, broker.port, case.kload_arguments(TOPIC, PARTITIONS, seconds))
    return (processor_time.nanoseconds(pids) - before_ns) / 1000 / found["requests"]


def measure_watched(directory: Path, options: argparse.Namespace, add: Add) -> None:
    """Measure the cost of the status page for the broker while browsers watch; its own process is not counted."""
    title = f"status page, {BROWSERS} browsers"
    if not cases.is_chosen(title, options.case):
        return
    with Broker(directory / "watched", {**options.set, "status.port": "0"}) as running:
        programs.kload(directory, "create", running.port, [TOPIC, str(PARTITIONS)])
        url, page = running.status()["status_url"], running.processes()["web"]
        pids = [pid for pid in running.pids() if pid not in page]
        arguments = WATCHED.kload_arguments(TOPIC, PARTITIONS, options.seconds)

        def alone() -> tuple[float, float]:
            """Return the percentage of a core that the broker uses, and its page."""
            before_ns, page_ns, begin_ns = *map(processor_time.nanoseconds, (pids, page)), time.monotonic_ns()
            programs.kload(directory, WATCHED.command, running.port, arguments)
            whole_ns = (time.monotonic_ns() - begin_ns) / 100
            return (
                (processor_time.nanoseconds(pids) - before_ns) / whole_ns,
                (processor_time.nanoseconds(page) - page_ns) / whole_ns,
            )

        # The page loads its framework with the first browser.
        with browsers(url, BROWSERS):
            alone()
        found, others = turns.beside(2 * options.turns, partial(browsers, url, BROWSERS), alone)
    added = turns.difference([each[0] for each in found], [each[0] for each in others])
    of_page = median(each[1] for each in found)
    print(f"{title}: {added:.2f} % of a core added, the page itself {of_page:.1f} %", flush=True)
    add(
        Row(
            f"{title}: processor time added to the broker (the page's own process: {of_page:.1f} %)",
            f"{added:.2f} % of a core",
            f"without {median(each[0] for each in others):.1f}",
            "",
            verdict(f"≤ {WATCHED_CPU_PERCENT:g} % of a core", added <= WATCHED_CPU_PERCENT),
        )
    )


def measure_crowds(directory: Path, options: argparse.Namespace, add: Add) -> None:
    """Measure the cost of connections that are idle, slow, or opened and closed in quick succession."""
    with Broker(directory / "crowds", options.set) as running:
        programs.kload(directory, "create", running.port, [TOPIC, str(PARTITIONS)])
        measure = {
            f"{SILENT:,} silent connections": measure_silent,
            f"{DRIPPING:,} connections that send a byte a second": measure_dripping,
            f"{COMING:,} connections opened and closed a second for {COMING_SECONDS:g} s": measure_coming,
        }
        for title, each in measure.items():
            if cases.is_chosen(title, options.case):
                each(title, directory, options, running, add)


def measure_silent(title: str, directory: Path, options: argparse.Namespace, running: Broker, add: Add) -> None:
    """Measure the memory of idle connections, and small Produce beside them."""
    used_kb = crowds.memory_of_a_connection(running, SILENT)
    expected = verdict(f"≤ {SILENT_KB:g} KB", used_kb <= SILENT_KB)
    add(Row(f"{title}: memory of each (PSS)", f"{used_kb:.3g} KB", "", "", expected))
    case = small_produce(64, 1)
    load = partial(figure, directory, options, running, case, case.unit)
    rates, others = turns.beside(options.turns, partial(crowds.silent, running.port, SILENT), load)
    kept = turns.ratio(rates, others)
    values = f"{median(rates):,.0f} {UNITS[case.unit]}", f"without {median(others):,.0f}", f"{kept:.2f}"
    expected = verdict(f"≥ {KEPT_BESIDE_SILENT:g}", kept >= KEPT_BESIDE_SILENT)
    add(Row(f"{case.title}, beside {title}", *values, expected))


def measure_dripping(title: str, directory: Path, options: argparse.Namespace, running: Broker, add: Add) -> None:
    """Measure the 99th percentile of small Produce beside slow connections."""
    case = BESIDE_DRIPPING
    load = partial(figure, directory, options, running, case, "p99_us")
    times, others = turns.beside(options.turns, partial(crowds.dripping, running.port, DRIPPING), load)
    growth = turns.ratio(times, others)
    values = f"{median(times):,.0f} µs", f"without {median(others):,.0f}", f"{growth:.2f}"
    expected = verdict(f"≤ {GROWTH_BESIDE_DRIPPING:g}", growth <= GROWTH_BESIDE_DRIPPING)
    add(Row(f"{case.title}, 500 requests/s, beside {title}: p99", *values, expected))


def figure(directory: Path, options: argparse.Namespace, running: Broker, case: Case, name: str) -> float:
    arguments = case.kload_arguments(TOPIC, PARTITIONS, options.seconds)
    return programs.kload(directory, case.command, running.port, arguments)[name]


def measure_coming(title: str, _directory: Path, _options: argparse.Namespace, running: Broker, add: Add) -> None:
    """Count the descriptors that remain of connections opened and closed in quick succession."""
    made, left = crowds.come_and_go(running, COMING, COMING_SECONDS)
    add(Row(f"{title}: descriptors left", f"{left} of {made:,}", "", "", verdict("0", left == 0)))
