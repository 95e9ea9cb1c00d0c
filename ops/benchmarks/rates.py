"""Rotunda, Apache Kafka and the ruler under the same loads, in alternating turns, with the processor time of each.

Both brokers are started once and run side by side; the one that has no load waits. Topics and the ruler's files are
made when their case begins and stay for its turns, so that all three read and append to files of the same age. Without
Kafka, the same loads show Rotunda beside the ruler.
"""

import argparse
import os
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from ops.benchmarks import cases, kafka, librdkafka, processor_time, programs, security, share_group
from ops.benchmarks.cases import PARTITIONS
from ops.benchmarks.comparison import KAFKA, ROTUNDA, RULER, Comparison, Side
from ops.benchmarks.processor_time import Spent
from ops.benchmarks.report import UNITS
from ops.broker import Broker, ProgramError

E2E_RECORD_BYTES = 100
#: Minimum duration of the turn before the counted ones, and of each warm-up load.
LEAST_SECONDS = 0.2
LIBRDKAFKA_TOPIC = "librdkafka"
OWN_PRODUCER = "our own producer on Rotunda, 100 B, in Kafka's place confluent-kafka"


@dataclass(frozen=True)
class Server:
    """Something that kload can be run against, and how to read the processor time of its parts."""

    name: str
    port: int
    spent: Callable[[], dict[str, Spent]]


@dataclass(frozen=True)
class Place:
    """The programs, the options, and the brokers: Rotunda, and perhaps Kafka."""

    directory: Path
    options: argparse.Namespace
    brokers: list[Server]

    def sides(self) -> dict[str, Side]:
        return {server.name: Side() for server in self.brokers}

    def kload(self, server: Server, command: str, arguments: list[str]) -> dict[str, float]:
        return programs.kload(self.directory, command, server.port, arguments)

    def warm_up(self, seconds: float, command: str, arguments: Callable[[float], list[str]]) -> None:
        """Run a load against each broker; against Kafka for as long as its JIT compilers need."""
        for server in self.brokers:
            lasting = seconds if server.name == KAFKA else LEAST_SECONDS
            self.kload(server, command, arguments(lasting))

    def turn(self, server: Server, command: str, arguments: list[str]) -> tuple[dict[str, float], dict[str, Spent]]:
        """Run kload against one server and return its figures and the processor time that the server used."""
        before = server.spent()
        found = self.kload(server, command, arguments)
        return found, processor_time.since(before, server.spent())


@dataclass(frozen=True)
class Measurement:
    """A line of the command's list: its title, how it warms the brokers up, and how it is measured."""

    title: str
    warm_up: Callable[[Place, float], None]
    measure: Callable[[Place], list[Comparison]]


def measure(directory: Path, options: argparse.Namespace) -> tuple[list[Comparison], list[str]]:
    """Run the chosen cases; return their comparisons and the titles of failed cases.

    Raises ProgramError if no case is chosen, or all of them failed.
    """
    every = measurements(with_kafka=options.against_kafka)
    chosen = [each for each in every if cases.is_chosen(each.title, options.case)]
    if not chosen:
        texts, titles = " or ".join(map(repr, options.case)), "\n".join(f"  {each.title}" for each in every)
        raise ProgramError(f"no title of a case contains {texts}; there are:\n{titles}")
    found: list[Comparison] = []
    failed: list[str] = []
    with brokers(directory, options) as running:
        place = Place(directory, options, running)
        for each in chosen:
            each.warm_up(place, max(options.warm_up / len(chosen), LEAST_SECONDS))
        for each in chosen:
            try:
                comparisons = each.measure(place)
            except ProgramError as failure:
                print(f"ops/bench: {each.title}: {failure}", file=sys.stderr, flush=True)
                failed.append(each.title)
                continue
            for comparison in comparisons:
                print(comparison.summary(), flush=True)
            found += comparisons
    if not found:
        raise ProgramError(f"all cases failed: {', '.join(failed)}")
    return found, failed


def measurements(*, with_kafka: bool) -> list[Measurement]:
    loads = [Measurement(case.title, partial(warm_up_load, case), partial(measure_load, case)) for case in cases.CASES]
    latency = Measurement("produce to fetch", warm_up_latency, measure_latency)
    groups = [
        Measurement(groups_title(offsets), partial(warm_up_groups, offsets), partial(measure_groups, offsets))
        for offsets in cases.OFFSETS_PER_COMMIT
    ]
    # Shares of two brokers that only their ratio makes comparable.
    secure = [Measurement("TLS: librdkafka's share kept of PLAINTEXT", warm_up_later, measure_security)]
    clients = [
        Measurement("librdkafka's Produce and Fetch", warm_up_later, measure_librdkafka),
        Measurement(share_group.TITLE, warm_up_later, measure_share_group),
        Measurement(OWN_PRODUCER, warm_up_later, measure_own_producer),
    ]
    light = [each for each, case in zip(loads, cases.CASES, strict=True) if case.ruler != "append"]
    heavy = [each for each in loads if each not in light]
    return [latency, *light, *groups, *(secure if with_kafka else []), *clients, *heavy]


def warm_up_later(_place: Place, _seconds: float) -> None:
    """Leave the warm-up to the measurement, whose first turn is not counted."""


@contextmanager
def brokers(directory: Path, options: argparse.Namespace) -> Iterator[list[Server]]:
    with ExitStack() as running:
        ours = running.enter_context(Broker(directory / "rotunda", options.set))
        roles = {"supervisor": [ours.pid], **ours.processes()}
        servers = [Server(ROTUNDA, ours.port, partial(spent_by, roles))]
        if options.against_kafka:
            kafka.prepare()
            theirs = running.enter_context(kafka.kafka(directory / "kafka"))
            servers.append(Server(KAFKA, theirs.port, partial(theirs.spent, theirs.threads())))
        yield servers


def spent_by(roles: dict[str, list[int]]) -> dict[str, Spent]:
    return {role: processor_time.total(map(processor_time.of_process, pids)) for role, pids in roles.items()}


# ---- one load ----


def prepare_load(place: Place, case: cases.Case, topic: str) -> None:
    """Create a case's topics in both brokers, filled if it reads them."""
    for server in place.brokers:
        many = ["1", str(case.topics)] if case.topics else [str(PARTITIONS)]
        place.kload(server, "create", [topic, *many])
        if case.fill:
            place.kload(server, "produce", [topic, str(PARTITIONS), str(PARTITIONS), "1", "0.5", *case.fill])


def warm_up_load(case: cases.Case, place: Place, seconds: float) -> None:
    topic = f"warm-up-{topic_of(case.title)}"
    prepare_load(place, case, topic)
    place.warm_up(seconds, case.command, lambda lasting: case.kload_arguments(topic, PARTITIONS, lasting))


def measure_load(case: cases.Case, place: Place) -> list[Comparison]:
    topic, sides = topic_of(case.title), {**place.sides(), RULER: Side()}
    prepare_load(place, case, topic)
    with programs.bare(place.directory, case.ruler, case.ruler_bytes) as bare:

        def spent_by_ruler() -> dict[str, Spent]:
            return {RULER: processor_time.of_process(bare.pid)}

        servers = [*place.brokers, Server(RULER, bare.port, spent_by_ruler)]
        for turn in range(-1, place.options.turns):
            seconds = place.options.seconds if turn >= 0 else LEAST_SECONDS
            for server in rotated(servers, turn):
                found, spent = place.turn(server, case.command, case.kload_arguments(topic, PARTITIONS, seconds))
                if turn >= 0:
                    sides[server.name].add(found[case.unit], found["requests"], spent)
                if case.ruler == "append":
                    # Flush now: the next case would otherwise wait for this one's dirty pages.
                    os.sync()
    return [Comparison(case.title, UNITS[case.unit], sides, case.expected_ratio)]


def topic_of(title: str) -> str:
    return "-".join("".join(c if c.isalnum() else " " for c in title).lower().split())


def rotated(servers: list[Server], turn: int) -> list[Server]:
    """Return the servers in the order of a turn; each is first equally often."""
    first = turn % len(servers)
    return servers[first:] + servers[:first]


# ---- produce to fetch ----


def warm_up_latency(place: Place, seconds: float) -> None:
    for server in place.brokers:
        place.kload(server, "create", ["latency", "1"])
    place.warm_up(seconds, "e2e", latency_arguments)


def latency_arguments(seconds: float) -> list[str]:
    return ["latency", "1", str(seconds), str(E2E_RECORD_BYTES)]


def measure_latency(place: Place) -> list[Comparison]:
    """Measure the time from a Produce to the response of a Fetch that waits for it. The ruler does not hold fetches."""
    sides = {key: place.sides() for key in cases.FASTER_PRODUCE_TO_FETCH}
    arguments = latency_arguments(place.options.seconds)
    for turn in range(place.options.turns):
        for server in rotated(place.brokers, turn):
            found, spent = place.turn(server, "e2e", arguments)
            for key, of_key in sides.items():
                # The processor time of a record is counted once only.
                of_key[server.name].add(found[key], found["requests"] if key == "p50_us" else 0, spent)
    return [
        Comparison(f"produce to fetch, {key.removesuffix('_us')}", "µs", sides[key], expected, less_is_better=True)
        for key, expected in cases.FASTER_PRODUCE_TO_FETCH.items()
    ]


# ---- with groups ----


def groups_title(offsets: int) -> str:
    """Return the title of a measurement with groups whose commits have this many offsets."""
    requests = f"{offsets} to a request" if offsets > 1 else "a request each"
    commits = f"{cases.COMMITS_PER_SECOND:,} offsets/s, {requests}"
    return f"small Produce kept beside {cases.GROUPS:,} groups, {commits}"


def warm_up_groups(_: int, place: Place, seconds: float) -> None:
    """Commit offsets of group members, so that coordinators are loaded."""
    for server in place.brokers:
        place.kload(server, "create", ["warm-up-groups", str(PARTITIONS)])
    place.warm_up(seconds, "commit", lambda lasting: ["warm-up-groups", str(PARTITIONS), "16", "1", str(lasting)])


def measure_groups(offsets: int, place: Place) -> list[Comparison]:
    """Measure the share of small Produce that remains during the heartbeats and commits of many groups."""
    case, topic, sides = cases.small_produce(64, 1), f"beside-groups-{offsets}", place.sides()
    arguments = case.kload_arguments(topic, PARTITIONS, place.options.seconds)
    members = [topic, str(cases.GROUPS), str(cases.GROUP_CONNECTIONS), str(cases.HEARTBEAT_MS)]
    members += [str(cases.COMMITS_PER_SECOND), str(offsets)]
    for server in place.brokers:
        place.kload(server, "create", [topic, str(PARTITIONS)])
        # One broker's groups are deleted before the other's form: their sessions would expire during its turns.
        with programs.gload(place.directory, server.port, members) as groups:
            for turn in range(-1, place.options.turns):
                alone = place.kload(server, case.command, arguments)
                with groups.busy():
                    found, spent = place.turn(server, case.command, arguments)
                if turn >= 0:
                    sides[server.name].add(found[case.unit] / alone[case.unit], found["requests"], spent)
    return [Comparison(groups_title(offsets), "", sides, cases.KEPT_BESIDE_GROUPS, decimals=2)]


# ---- TLS and SASL ----


def measure_security(place: Place) -> list[Comparison]:
    """Measure the cost of TLS and SASL, on brokers of its own while those of the other loads are idle."""
    with librdkafka.failures():
        return security.measure(place.directory, place.options.turns, place.options.set)


# ---- client libraries ----


def measure_librdkafka(place: Place) -> list[Comparison]:
    """Measure how fast one librdkafka client produces and fetches."""
    sides = {load.title: place.sides() for load in librdkafka.LOADS}
    with librdkafka.failures():
        for server in place.brokers:
            librdkafka.create(client_of(server), [LIBRDKAFKA_TOPIC])
        for number in range(-1, place.options.turns):
            for load in librdkafka.LOADS:
                for server in rotated(place.brokers, number):
                    before = server.spent()
                    rate = load.measure(client_of(server), LIBRDKAFKA_TOPIC)
                    spent = processor_time.since(before, server.spent())
                    if number >= 0:
                        sides[load.title][server.name].add(rate, load.records / 1000, spent)
    return [Comparison(load.title, "records/s", sides[load.title], load.expected_ratio) for load in librdkafka.LOADS]


def measure_share_group(place: Place) -> list[Comparison]:
    """Measure how fast the members of a share group read a topic; each turn has a new group."""
    topic, records, sides = "share-group", share_group.RECORDS, place.sides()
    with librdkafka.failures():
        for server in place.brokers:
            share_group.fill(client_of(server), topic, records)
        for number in range(-1, place.options.turns):
            for server in rotated(place.brokers, number):
                before = server.spent()
                rate = share_group.rate(client_of(server), topic, f"{topic}-{number + 1}", records)
                spent = processor_time.since(before, server.spent())
                if number >= 0:
                    sides[server.name].add(rate, records / 1000, spent)
    return [Comparison(share_group.TITLE, "records/s", sides, share_group.EXPECTED_RATIO)]


def client_of(server: Server) -> librdkafka.Settings:
    return {"bootstrap.servers": f"127.0.0.1:{server.port}"}


def measure_own_producer(place: Place) -> list[Comparison]:
    """Measure Rotunda's producer and confluent-kafka, both on Rotunda, in turns."""
    names = {"rotunda": ROTUNDA, "confluent-kafka": KAFKA}
    sides, rounds = {side: Side() for side in names.values()}, place.options.turns + 1
    found = programs.producer_rates(place.brokers[0].port, list(names), cases.OWN_PRODUCER_RECORDS, rounds)
    for name, side in names.items():
        for rate in found[name][1:]:
            sides[side].add(rate, 0, {})
    return [Comparison(OWN_PRODUCER, "records/s", sides, cases.OWN_PRODUCER)]
