"""The workloads of the clients, each in threads of its own: write a topic and read it, in transactions or not.

A workload gets a library and recreates its own clients when they break, resuming from its position: a client that fails
for good is counted, and never a reason to stop. Groups and the compacted topic have modules of their own.
"""

from __future__ import annotations

import random
import threading
import time
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Protocol

from ops.clients.library import ClientError, Isolation, Kind, Library, Producer, Reader, Remedy, ToSend
from ops.reliability.ledger import ABORTED, FAILED, FAULTS, Ledger, Reading, Tally

PARTITIONS = 4
LARGEST_BATCH = 20
PADDING_BYTES = 200
#: Timeout for a reader, at the end, to reach the acknowledged records.
READ_SECONDS = 90.0
MOST_TRIES = 30
PAUSE_SECONDS = 0.2


@dataclass(frozen=True)
class Topic:
    """A topic that a workload writes, and its settings."""

    name: str
    partitions: int
    configs: Mapping[str, str] = field(default_factory=dict)

    def wanted(self) -> dict[str, object]:
        configs = [{"name": name, "value": value} for name, value in self.configs.items()]
        return {"name": self.name, "num_partitions": self.partitions, "replication_factor": 1, "configs": configs}


class Workload(Protocol):
    """Runs from `start` on, writing its own topics; `finish` ends its writing and lets it read everything."""

    name: str
    topics: tuple[Topic, ...]

    def start(self) -> None:
        """Begin, in threads."""

    def finish(self) -> None:
        """Stop writing, and read all records."""

    def tally(self, at_end: bool) -> Tally:
        """Return the observations so far, or at the end."""


class Client:
    """A client of a library that is made when it is needed, and again after it has broken. Its faults are counted."""

    def __init__(self, make: Callable[[], object], errors: Counter[str]) -> None:
        self._make, self._errors = make, errors
        self._client: object | None = None

    def get(self) -> object:
        """Return the client; ClientError when it cannot be made now."""
        if self._client is None:
            self._client = self._make()
        return self._client

    def note(self, fault: ClientError) -> None:
        """Count a fault; a client that is of no more use is closed."""
        self._errors[str(fault)] += 1
        if fault.remedy is Remedy.REPLACE:
            self.close()

    def close(self) -> None:
        """Close the client; the next use creates a new one."""
        client, self._client = self._client, None
        try:
            if client is not None:
                client.close()
        except ClientError as fault:
            self._errors[str(fault)] += 1


class Stopwatch:
    """The longest time between two moments of progress."""

    def __init__(self) -> None:
        self.longest_seconds = 0.0
        self._last = 0.0

    def progress(self) -> None:
        now = time.monotonic()
        if self._last:
            self.longest_seconds = max(self.longest_seconds, now - self._last)
        self._last = now

    def longest_until_now(self) -> float:
        """Return the longest time in seconds, the present one included."""
        return max(self.longest_seconds, time.monotonic() - self._last if self._last else 0.0)

    def end(self) -> None:
        """Note the end of all activity."""
        self.progress()
        self._last = 0.0


class TopicWorkload:
    """One producer of a kind writes a topic, one reader follows it; at the end a second one reads all of it again."""

    def __init__(self, library: Library, kind: Kind, chance: random.Random) -> None:
        self.name = f"{library.name} {kind.value}"
        self.topic = Topic(f"campaign-{library.name}-{kind.value}", PARTITIONS)
        self.topics = (self.topic,)
        self.kind = kind
        self.ledger = Ledger(PARTITIONS, is_exact=kind is not Kind.PLAIN or not library.plain_repeats)
        self._library, self._chance = library, chance
        self._isolation = Isolation.COMMITTED if kind is Kind.TRANSACTIONAL else Isolation.UNCOMMITTED
        self._errors: Counter[str] = Counter()
        self._producer = Client(lambda: library.producer(kind, self.topic.name, self.topic.name), self._errors)
        self._reading, self._again = Reading(self.ledger), Reading(self.ledger)
        self._stopwatch = Stopwatch()
        #: Set when the writer has ended.
        self.written = threading.Event()
        self._enough, self._read = threading.Event(), threading.Event()
        self._threads = [threading.Thread(target=each, daemon=True) for each in (self._write_all, self._read_all)]

    def start(self) -> None:
        for thread in self._threads:
            thread.start()

    def finish(self) -> None:
        """Write no more; read to the end, and everything once more."""
        self._enough.set()
        self._threads[0].join(READ_SECONDS)
        self._read.set()
        self._threads[1].join(READ_SECONDS)
        follow(self._library, self.topic.name, self._isolation, self._again, self._read, self._errors)

    def tally(self, at_end: bool) -> Tally:
        """Return the observations; the second reader's count as the first's."""
        tally = self._reading.judge(at_end)
        if at_end:
            again = self._again.judge(at_end)
            for fault in (*FAULTS, "repeated_by_client"):
                setattr(tally, fault, max(getattr(tally, fault), getattr(again, fault)))
            tally.evidence += [f"when read again: {line}" for line in again.evidence]
        tally.longest_pause_seconds = self._stopwatch.longest_until_now()
        tally.errors = Counter(self._errors)
        return tally

    def _write_all(self) -> None:
        mean_pause = LARGEST_BATCH / 2 / self._library.records_per_second
        while not self._enough.wait(self._chance.expovariate(1 / mean_pause)):
            try:
                producer = self._producer.get()
            except ClientError as fault:
                self._producer.note(fault)
                continue
            numbered = self._next_records()
            if self.kind is Kind.TRANSACTIONAL:
                self._write_transaction(producer, numbered)
            else:
                self._write(producer, numbered, settle=True)
        self._stopwatch.end()
        self.written.set()
        self._producer.close()

    def _next_records(self) -> list[tuple[int, int]]:
        """Return partition and number of the records of the next batch."""
        count = self._chance.randint(1, LARGEST_BATCH)
        partitions = [self._chance.randrange(PARTITIONS) for _ in range(count)]
        return [(partition, self.ledger.send(partition)) for partition in partitions]

    def _write(self, producer: Producer, numbered: list[tuple[int, int]], settle: bool) -> list[int]:
        """Send the records; return their offsets, FAILED for those that the client dropped."""
        padding = b" " + b"." * self._chance.randrange(PADDING_BYTES)
        try:
            results = producer.send([ToSend(each, None, b"%d" % number + padding) for each, number in numbered])
        except ClientError as fault:
            self._producer.note(fault)
            results = [FAILED] * len(numbered)
        outcomes = []
        for (partition, number), result in zip(numbered, results, strict=True):
            if isinstance(result, str):
                self._errors[result] += 1
            outcome = FAILED if isinstance(result, str) else result
            outcomes.append(outcome)
            if settle:
                self.ledger.settle(partition, number, outcome)
        if FAILED not in outcomes:
            self._stopwatch.progress()
        elif self.kind is Kind.IDEMPOTENT:
            # An idempotent producer that has dropped a record does not know its sequence numbers any more.
            self._producer.close()
        return outcomes

    def _write_transaction(self, producer: Producer, numbered: list[tuple[int, int]]) -> None:
        """Send the records in a transaction, and commit or abort it."""
        outcomes: list[int] = []
        try:
            producer.begin()
            outcomes = self._write(producer, numbered, settle=False)
        except ClientError as fault:
            self._producer.note(fault)
        if not outcomes or FAILED in outcomes or self._chance.random() < 1 / 4:
            self._settle(numbered, [ABORTED] * len(numbered))
            self._end(producer.abort)
        elif self._end(producer.commit):
            self._settle(numbered, outcomes)
            self._stopwatch.progress()
        else:
            self.ledger.leave_undecided(numbered)

    def _settle(self, numbered: list[tuple[int, int]], outcomes: list[int]) -> None:
        for (partition, number), outcome in zip(numbered, outcomes, strict=True):
            self.ledger.settle(partition, number, outcome)

    def _end(self, end: Callable[[], None]) -> bool:
        """Commit or abort, with as many retries as the client's remedy allows; return whether it was done.

        A client that has failed in this is replaced: the next one with its id aborts the open transaction.
        """
        for _ in range(MOST_TRIES):
            try:
                end()
            except ClientError as fault:
                self._producer.note(fault)
                if fault.remedy is not Remedy.RETRY:
                    break
                time.sleep(PAUSE_SECONDS)
            else:
                return True
        self._producer.close()
        return False

    def _read_all(self) -> None:
        follow(self._library, self.topic.name, self._isolation, self._reading, self._read, self._errors)


def follow(
    library: Library,
    topic: str,
    isolation: Isolation,
    reading: Reading,
    written: threading.Event,
    errors: Counter[str],
) -> None:
    """Read a topic while it is written; afterwards, until its end is reached, for READ_SECONDS at most."""

    def make() -> Reader:
        return library.reader(topic, isolation, dict(enumerate(reading.next_offsets)))

    client = Client(make, errors)
    deadline = None
    while deadline is None or time.monotonic() < deadline:
        try:
            records = client.get().poll()
            for record in records:
                reading.take(record.partition, record.offset, record.value)
            if written.is_set() and not records and has_ended(client.get()):
                break
        except ClientError as fault:
            client.note(fault)
            time.sleep(PAUSE_SECONDS)
        if written.is_set() and deadline is None:
            deadline = time.monotonic() + READ_SECONDS
    client.close()


def has_ended(reader: Reader) -> bool:
    positions = reader.positions()
    return all(positions.get(partition, 0) >= end for partition, end in reader.ends().items())
