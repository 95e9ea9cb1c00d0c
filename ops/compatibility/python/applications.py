"""Shared code of the checks of stream frameworks: an application as a process of its own, and its records.

Imported by the programs of ops/compatibility/{faststream,quixstreams,faust,bytewax}, each in its framework's own
environment. Uses Kafka only through confluent-kafka.
"""

import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterable
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from checks import require, unique
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

WAIT_SECONDS = 90.0
STOP_SECONDS = 30.0
LOG_CHARACTERS = 2000
PARTITIONS = 4
KEYS = 20
COUNT = 2000
# Recent, because retention depends on records' times.
FIRST_MS = int(time.time()) // 3600 * 3_600_000
STEP_MS = 50
WINDOW_MS = 10_000

#: key, value and timestamp in milliseconds
Record = tuple[str, bytes, int]


class Application:
    """A framework's application in its `with` block; `kill` and `start` may alternate."""

    def __init__(self, *command: str) -> None:
        self._command = command
        self._process: subprocess.Popen[bytes] | None = None
        self._log = tempfile.TemporaryFile()  # noqa: SIM115 - closed with the block

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, failure: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.kill()
        if failure is not None:
            print(self.log_tail(), file=sys.stderr)
        self._log.close()

    def start(self) -> None:
        """Start it with its output in a file of its own."""
        self._process = subprocess.Popen(
            [sys.executable, *self._command], stdin=subprocess.DEVNULL, stdout=self._log, stderr=self._log
        )

    def check_alive(self) -> None:
        """Raise AssertionError with the end of its log when it has ended."""
        assert self._process is not None  # noqa: S101 - it has been started
        require(self._process.poll() is None, f"the application has ended: {self.log_tail()}")

    def kill(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.wait()

    def stop(self) -> None:
        """Stop it like its users would: by SIGTERM."""
        assert self._process is not None  # noqa: S101 - it has been started
        self._process.send_signal(signal.SIGTERM)
        self._process.wait(STOP_SECONDS)

    def finish(self) -> None:
        """Wait until it has ended by itself. AssertionError unless it succeeded."""
        assert self._process is not None  # noqa: S101 - it has been started
        require(self._process.wait(WAIT_SECONDS) == 0, f"the application failed: {self.log_tail()}")

    def log_tail(self) -> str:
        self._log.seek(0)
        return self._log.read().decode(errors="replace")[-LOG_CHARACTERS:]


def application(folder: str, *arguments: str) -> Application:
    """Return the application of a framework's folder; it has not been started."""
    return Application(str(Path(folder).parent / "application.py"), *arguments)


def new_topics(bootstrap: str, *names: str) -> list[str]:
    """Create topics of four partitions with these name prefixes and return their names."""
    full = [unique(name) for name in names]
    client = AdminClient({"bootstrap.servers": bootstrap})
    for future in client.create_topics([NewTopic(name, PARTITIONS, 1) for name in full]).values():
        future.result(WAIT_SECONDS)
    return full


def topics_of(bootstrap: str) -> set[str]:
    return set(AdminClient({"bootstrap.servers": bootstrap}).list_topics(timeout=WAIT_SECONDS).topics)


def fill(bootstrap: str, topic: str, records: Iterable[Record]) -> None:
    """Produce records by the hashes of their keys, those of a key in their order."""
    producer = Producer({"bootstrap.servers": bootstrap, "enable.idempotence": True, "linger.ms": 5})
    for key, value, timestamp in records:
        producer.produce(topic, value, key, timestamp=timestamp)
    require(producer.flush(WAIT_SECONDS) == 0, "producer.flush(WAIT_SECONDS) == 0")


def committed(bootstrap: str, topic: str) -> list[tuple[str, bytes]]:
    """Return the keys and values of a topic up to its last stable offset, without aborted records."""
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": unique("reader"),
            "isolation.level": "read_committed",
            "enable.partition.eof": True,
            "enable.auto.commit": False,
        }
    )
    consumer.assign([TopicPartition(topic, number, 0) for number in range(PARTITIONS)])
    found, ended = [], set[int]()
    end = time.monotonic() + WAIT_SECONDS
    while len(ended) < PARTITIONS:
        require(time.monotonic() < end, f"{topic} was not read to its end")
        message = consumer.poll(1.0)
        if message is None:
            continue
        if message.error() is not None:
            ended.add(message.partition())
        else:
            found.append(((message.key() or b"").decode(), message.value()))
    consumer.close()
    return found


def taken(bootstrap: str, group: str, topic: str) -> int:
    """Return how many records of a topic a group has committed."""
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": group})
    wanted = [TopicPartition(topic, number) for number in range(PARTITIONS)]
    positions = consumer.committed(wanted, timeout=WAIT_SECONDS)
    consumer.close()
    return sum(max(0, each.offset) for each in positions)


def wait_for(what: str, running: Iterable[Application], condition: Callable[[], Any]) -> None:
    """Wait until the condition is true. AssertionError when an application ends or after 90 s."""
    end = time.monotonic() + WAIT_SECONDS
    while not condition():
        for each in running:
            each.check_alive()
        require(time.monotonic() < end, f"not within {WAIT_SECONDS:.0f} s: {what}")
        time.sleep(0.2)


def key_of(number: int) -> str:
    return f"key-{number % KEYS}"


def timestamp_of(number: int) -> int:
    return FIRST_MS + number * STEP_MS


def require_running_totals(found: Iterable[tuple[str, int]], count: int) -> None:
    """Raise AssertionError unless each key has counted 1, 2, 3 and so on, each number once and in order."""
    by_key: dict[str, list[int]] = {}
    for key, number in found:
        by_key.setdefault(key, []).append(number)
    wanted = Counter(key_of(number) for number in range(count))
    require(set(by_key) == set(wanted), f"keys {sorted(by_key)}")
    for key, numbers in by_key.items():
        odd = next((at for at, number in enumerate(numbers) if number != at + 1), len(numbers))
        about = f"{key} counted {len(numbers)} of {wanted[key]}, at {odd}: {numbers[max(0, odd - 3) : odd + 3]}"
        require(odd == len(numbers) == wanted[key], about)


def records(first: int, end: int, value: Callable[[int], object]) -> list[Record]:
    """Return the records of these numbers, with their values as JSON."""
    numbers = range(first, end)
    return [(key_of(number), json.dumps(value(number)).encode(), timestamp_of(number)) for number in numbers]


def window_sums(count: int) -> dict[tuple[str, int], int]:
    """Return the sum of the records' numbers by key and by the beginning of their window."""
    sums: Counter[tuple[str, int]] = Counter()
    for number in range(count):
        time_ms = timestamp_of(number)
        sums[key_of(number), time_ms - time_ms % WINDOW_MS] += number
    return dict(sums)


def scratch() -> tempfile.TemporaryDirectory[str]:
    """Return a directory for an application's own state, deleted at the end of its block."""
    return tempfile.TemporaryDirectory(prefix="application-", dir=os.environ.get("TMPDIR"), ignore_cleanup_errors=True)
