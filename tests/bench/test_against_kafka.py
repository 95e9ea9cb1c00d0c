"""`ops/bench --against-kafka`: short turns against Apache Kafka, every load against our broker, and the tables."""

import os
import re
import subprocess
import threading
from pathlib import Path

import pytest

from ops.benchmarks import cases, librdkafka, processor_time, programs, report, share_group
from ops.benchmarks.comparison import KAFKA, ROTUNDA, RULER, Comparison, Side, tables
from ops.benchmarks.processor_time import Spent
from ops.broker import ProgramError
from tests.support.broker_process import BrokerProcess
from tests.support.deadline import wait_until

ROOT = Path(__file__).parents[2]
RATE = re.compile(r"[\d,]+")


def bench(directory: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = [str(ROOT / "ops" / "bench"), "--against-kafka", "--dir", str(directory), *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=False)


@pytest.mark.compat
@pytest.mark.needs("kafka")
def test_a_short_turn_against_kafka(tmp_path: Path) -> None:
    done = bench(tmp_path, "--case", "OffsetCommit", "--turns", "1", "--seconds", "1", "--warm-up", "1")
    # 1: a figure is too low, which is irrelevant here.
    assert done.returncode in (0, 1), done.stderr
    rows = [[cell.strip() for cell in line.split("|")[1:-1]] for line in done.stdout.splitlines() if "|" in line]
    rates, costs = [row for row in rows if row[0].startswith("OffsetCommit")]
    assert rates[1].endswith(" requests/s")
    for rate in (rates[1].split()[0], *rates[2:4]):
        assert RATE.fullmatch(rate), rate
    assert re.fullmatch(r"[\d.]+ \([\d.]+ to [\d.]+\)", rates[4])
    for cost in costs[1:3]:
        # A part that has had no time on a processor is left out.
        assert re.fullmatch(r"[\d,.]+ \+ [\d,.]+( \([a-z ]+ [\d,.]+ \+ .*\))?", cost), cost
    assert not list(tmp_path.iterdir()), "what was measured with is gone"


def test_a_case_that_there_is_not(tmp_path: Path) -> None:
    done = bench(tmp_path, "--case", "no such case")
    assert done.returncode == 2
    assert "'no such case'; there are:" in done.stderr
    assert all(case.title in done.stderr for case in cases.CASES)


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (["--spark", "1"], "not allowed with argument --against-kafka"),
        (["--turns", "0"], "at least one turn"),
    ],
)
def test_options_that_mean_nothing_are_rejected(tmp_path: Path, arguments: list[str], complaint: str) -> None:
    done = bench(tmp_path, *arguments)
    assert (done.returncode, complaint in done.stderr) == (2, True), done.stderr


def is_answered(directory: Path, command: str, port: int, load: list[str]) -> None:
    """Send a load for a moment, and again where the machine had no time for a single request in it."""
    wait_until(lambda: programs.kload(directory, command, port, load)["requests"], f"answers to {command}")


def test_every_load_is_answered_without_an_error(tmp_path: Path, broker: BrokerProcess) -> None:
    programs.build(tmp_path)
    for number, case in enumerate(cases.CASES):
        topic = f"against-kafka-{number}"
        many = ["1", str(case.topics)] if case.topics else ["4"]
        programs.kload(tmp_path, "create", broker.port, [topic, *many])
        if case.fill:
            programs.kload(tmp_path, "produce", broker.port, [topic, "4", "4", "1", "0.1", *case.fill])
        is_answered(tmp_path, case.command, broker.port, case.kload_arguments(topic, 4, 0.1))


def test_the_loads_of_client_libraries(broker: BrokerProcess) -> None:
    settings = {"bootstrap.servers": f"127.0.0.1:{broker.port}"}
    librdkafka.create(settings, ["client-libraries"])
    assert librdkafka.produced(settings | {"linger.ms": 0}, "client-libraries", librdkafka.texts(3, 100), 2000) > 0
    assert librdkafka.fetched(settings, "client-libraries", 2000) > 0
    rates = programs.producer_rates(broker.port, ["rotunda", "confluent-kafka"], 500, 2)
    assert [len(rates[name]) for name in ("rotunda", "confluent-kafka")] == [2, 2]
    with pytest.raises(ProgramError, match="librdkafka: "), librdkafka.failures():
        librdkafka.create(settings, ["client-libraries"])


def test_the_load_of_a_share_group(broker: BrokerProcess) -> None:
    settings = {"bootstrap.servers": f"127.0.0.1:{broker.port}"}
    share_group.fill(settings, "share-group", 800)
    for group in ("one", "other"):
        assert share_group.rate(settings, "share-group", group, 800) > 0, "each group reads all records"


@pytest.mark.parametrize("kind", ["echo", "append", "file"])
def test_the_ruler_outlives_a_load(tmp_path: Path, kind: str) -> None:
    programs.build(tmp_path)
    with programs.bare(tmp_path, kind, 1 << 16) as ruler:
        for command, more in (("produce", ["100", "160"]), ("heartbeat", []), ("metadata", [])):
            is_answered(tmp_path, command, ruler.port, ["t", "4", "16", "5", "0.1", *more])


def test_the_tables() -> None:
    ours, kafka, ruler = Side(), Side(), Side()
    for turn, rate in enumerate((100.0, 300.0, 200.0)):
        ours.add(rate, rate, {"processor": Spent(rate * 2e-6, rate * 1e-6), "web": Spent(0.0, 0.0)})
        kafka.add(200.0, 200.0, {"others": Spent(0.1 * turn, 0.0)})
        ruler.add(1000.0, 1000.0, {RULER: Spent(0.001, 0.002)})
    sides = {ROTUNDA: ours, KAFKA: kafka, RULER: ruler}
    both = {ROTUNDA: ours, KAFKA: kafka}
    found = [
        Comparison("loads", "requests/s", sides, 1.2),
        Comparison("times", "µs", both, 1.0, less_is_better=True),
    ]
    assert found[0].ratios() == [0.5, 1.5, 1.0]
    assert [each.falls_short() for each in found] == [True, False]
    lines = tables(found).splitlines()
    assert lines[2].startswith("| loads | 200 requests/s | 200 | 1,000 | 1.00 (0.50 to 1.50) |")
    assert lines[2].endswith(f"| ≥ 1.2: {report.SHORT} |")
    assert lines[3] == "| times | 200 µs | 200 |  | 1.00 (0.67 to 2.00) | ≥ 1 |"
    assert "| loads | 2.0 + 1.0 (processor 2.0 + 1.0) | 500 + 0 |" in lines


def test_processor_time_of_processes_and_threads() -> None:
    before = {"mine": processor_time.of_process(os.getpid())}
    spent = {"mine": Spent(0.0, 0.0)}
    while sum(spent["mine"]) < 0.05:
        sum(range(10_000))
        spent = processor_time.since(before, {"mine": processor_time.of_process(os.getpid())})
    own = processor_time.of_threads(os.getpid(), [threading.get_native_id()])
    assert sum(own) > 0
    gone = processor_time.of_threads(os.getpid(), [threading.get_native_id(), 1 << 30])
    assert gone.user >= own.user


def test_only_a_part_of_the_page_is_rewritten(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text((ROOT / "docs" / "performance.md").read_text())
    figures = "new figures | 3.1 + 2.0 (processor 3.0 + 1.9, web 0.1 + 0.1) | 1.00 (0.9 to 1)"
    report.record(page, report.AGAINST_KAFKA, "Measured now.", figures)
    before, after = (ROOT / "docs" / "performance.md").read_text(), page.read_text()
    begin, end = report.AGAINST_KAFKA
    assert after.split(begin)[0] == before.split(begin)[0]
    assert after.split(begin)[1].startswith(f"\n\nMeasured now.\n\nnew figures | 3.1 + 2.0 | 1.00 (0.9 to 1)\n\n{end}")
    assert after.split(end)[1] == before.split(end)[1]
    assert report.FIGURES.begin in before
