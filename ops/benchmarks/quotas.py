"""Kafka's own load tools under quotas, on this broker and on Apache Kafka at the same time.

`python -m ops.benchmarks.quotas` sets the same quotas on both with kafka-configs, runs kafka-producer-perf-test and
kafka-consumer-perf-test against each, and prints their rates over half a minute. A client without pacing sends ten
seconds' worth in a burst every eleven seconds, when the windows of the last burst expire; so the measured time begins
and ends with whole rounds. Exit status 1 when a rate is off by more than `TOLERANCE`, 2 when a program failed.
"""

import os
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from itertools import pairwise
from pathlib import Path

from confluent_kafka import Consumer, TopicPartition

from ops.benchmarks import kafka, programs
from ops.benchmarks.programs import MeasurementError
from ops.compatibility import preparation

#: Bytes a second.
QUOTA = 1_000_000
RECORD_BYTES = 1000
RECORDS = 90_000
TOLERANCE = 0.05
#: Rounds of all windows: before the measurement, and during it.
SETTLE_S, MEASURED_S = 22.0, 33.0
DEADLINE_S = 180.0
LOOK_S = 0.1
#: A consumer without records for this long is throttled between two bursts.
PAUSE_S = 3.0
CLIENT_ID = "perf"
TOPIC = "quota"
CLASSES = f"{preparation.JARS}/*{os.pathsep}{preparation.KAFKA_JARS}/*"

CREATE = "org.apache.kafka.tools.TopicCommand"
CONFIGS = "org.apache.kafka.tools.ConfigCommand"
PRODUCE = "org.apache.kafka.tools.ProducerPerformance"
CONSUME = "org.apache.kafka.tools.ConsumerPerformance"


def main() -> int:
    """Measure and print; returns the exit status."""
    try:
        kafka.prepare()
        with tempfile.TemporaryDirectory(prefix="rotunda-quotas-") as name, ExitStack() as stack:
            directory = Path(name)
            ours = stack.enter_context(programs.broker(directory / "ours", []))
            theirs = stack.enter_context(kafka.kafka(directory / "theirs"))
            ports = {"Rotunda": ours.port, "Apache Kafka": theirs.port}
            rates = {("produce", who): rate for who, rate in together(ports, produced).items()}
            rates |= {("consume", who): rate for who, rate in together(ports, consumed).items()}
    except MeasurementError as failure:
        print(f"quotas: {failure}", file=sys.stderr)
        return 2
    return report(rates)


def report(rates: dict[tuple[str, str], float]) -> int:
    """Print the rates; 1 if one is too far from the quota or from the other broker's."""
    is_off = False
    print(f"quota {QUOTA:,} bytes/s, over {MEASURED_S:.0f} s behind the first {SETTLE_S:.0f}")
    for what in ("produce", "consume"):
        ours, theirs = (rates[what, who] for who in ("Rotunda", "Apache Kafka"))
        print(
            f"{what}: Rotunda {ours:,.0f} bytes/s ({ours / QUOTA:.3f} of the quota), "
            f"Apache Kafka {theirs:,.0f} ({theirs / QUOTA:.3f}); ratio {ours / theirs:.3f}"
        )
        is_off |= any(abs(value - 1) > TOLERANCE for value in (ours / QUOTA, theirs / QUOTA, ours / theirs))
    return int(is_off)


def together(ports: dict[str, int], measure: Callable[[int], float]) -> dict[str, float]:
    """Measure all brokers at the same time; return the rate of each."""
    found: dict[str, float] = {}
    failures: list[BaseException] = []

    def run(who: str, port: int) -> None:
        try:
            found[who] = measure(port)
        except BaseException as failure:
            failures.append(failure)

    threads = [threading.Thread(target=run, args=each) for each in ports.items()]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if failures:
        raise failures[0]
    return found


def produced(port: int) -> float:
    """Return the bytes a second of a producer under a quota for its client id."""
    tool(CREATE, port, "--create", "--topic", TOPIC, "--partitions", "1")
    whose = ("--entity-type", "clients", "--entity-name", CLIENT_ID)
    tool(CONFIGS, port, "--alter", *whose, "--add-config", f"producer_byte_rate={QUOTA}")
    properties = (f"bootstrap.servers=127.0.0.1:{port}", f"client.id={CLIENT_ID}", "acks=1", "linger.ms=0")
    arguments = ["--topic", TOPIC, "--num-records", str(RECORDS), "--record-size", str(RECORD_BYTES)]
    arguments += ["--throughput", "-1", "--producer-props", *properties]
    with running(PRODUCE, *arguments) as process:
        while end_offset(port) == 0:
            time.sleep(LOOK_S)
        time.sleep(SETTLE_S)
        before, begun = end_offset(port), time.monotonic()
        time.sleep(MEASURED_S)
        rate = (end_offset(port) - before) / (time.monotonic() - begun) * RECORD_BYTES
        # The rest is for the consumer.
        tool(CONFIGS, port, "--alter", *whose, "--delete-config", "producer_byte_rate")
        process.wait(DEADLINE_S)
    return rate


def consumed(port: int) -> float:
    """Return the bytes a second of a consumer under a quota for each client id; the topic is full."""
    tool(CONFIGS, port, "--alter", "--entity-type", "clients", "--entity-default", "--add-config",
         f"consumer_byte_rate={QUOTA}")  # fmt: skip
    arguments = ["--bootstrap-server", f"127.0.0.1:{port}", "--topic", TOPIC, "--num-records", str(RECORDS)]
    arguments += ["--timeout", str(int(DEADLINE_S * 1000)), "--show-detailed-stats", "--reporting-interval", "500"]
    figures: list[tuple[float, float]] = []
    with running(CONSUME, *arguments, "--group", "quota") as process:
        assert process.stdout is not None  # noqa: S101 - it was asked for
        for line in process.stdout:
            fields = line.split(",")
            if len(fields) > 3 and fields[1].strip() == "0":
                figures.append((time.monotonic(), float(fields[2]) * (1 << 20)))
            if figures and figures[-1][0] > figures[0][0] + SETTLE_S + MEASURED_S:
                break
    return between_bursts(figures)


def between_bursts(figures: list[tuple[float, float]]) -> float:
    """Return the bytes a second from the beginning of one burst to that of another, of (time, bytes so far)."""
    pauses = [(before, after) for before, after in pairwise(figures) if after[0] - before[0] > PAUSE_S]
    if len(pauses) <= 1:
        raise MeasurementError(f"{CONSUME} printed {len(figures)} figures and paused {len(pauses)} times")
    (first, begin), (last, end) = pauses[0], pauses[-1]
    return (last[1] - first[1]) / (end[0] - begin[0])


@contextmanager
def running(main_class: str, *arguments: str) -> Iterator["subprocess.Popen[str]"]:
    """Run one of Kafka's tools until the block ends."""
    command = ["java", "-cp", CLASSES, main_class, *arguments]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as process:
        try:
            yield process
        finally:
            process.kill()


def tool(main_class: str, port: int, *arguments: str) -> None:
    """Run one of Kafka's tools to its end. Raises MeasurementError with its output when it fails."""
    command = ["java", "-cp", CLASSES, main_class, "--bootstrap-server", f"127.0.0.1:{port}", *arguments]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=DEADLINE_S)
    if done.returncode:
        raise MeasurementError(f"{main_class} failed: {done.stdout}{done.stderr}")


def end_offset(port: int) -> int:
    """Return how many records the topic has."""
    consumer = Consumer({"bootstrap.servers": f"127.0.0.1:{port}", "group.id": "quota-offsets"})
    try:
        _, end = consumer.get_watermark_offsets(TopicPartition(TOPIC, 0), timeout=DEADLINE_S)
    finally:
        consumer.close()
    return int(end)


if __name__ == "__main__":
    sys.exit(main())
