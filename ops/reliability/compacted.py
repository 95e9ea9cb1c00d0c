"""A compacted topic: its writer updates a few keys all the time, its reader reads the whole topic repeatedly.

Whatever records compaction has removed, the last value of each key is there: a value no older than the newest one
acknowledged when the reading began, or nothing where the key was deleted by then or later. Offsets never decrease.
"""

from __future__ import annotations

import random
import threading
import time
from collections import Counter

from ops.clients.library import ClientError, Isolation, Kind, Library, Record, ToSend
from ops.reliability.ledger import MOST_EVIDENCE, Tally, number_of
from ops.reliability.workloads import PAUSE_SECONDS, READ_SECONDS, Client, Stopwatch, Topic, has_ended

KEYS = 40
PARTITIONS = 2
BATCH = 10
PADDING_BYTES = 300
DELETED_SHARE = 1 / 10
#: Segments roll so soon that compaction always has something to do.
CONFIGS = {
    "cleanup.policy": "compact",
    "segment.ms": "2000",
    "min.cleanable.dirty.ratio": "0.01",
    "delete.retention.ms": "1000",
}
MEAN_REREAD_SECONDS = 5.0


class KeyLedger:
    """The writer's side: numbers of acknowledged values by key, and of deletions, whether acknowledged or not."""

    def __init__(self) -> None:
        self.sent = self.acknowledged = self.failed = 0
        self.newest: dict[bytes, int] = {}
        self.deletions: dict[bytes, int] = {}

    def missing(self, before: dict[bytes, int], found: dict[bytes, int]) -> list[str]:
        """Return a line for each key whose last value is missing: `found` has the number last read, if it has a value.

        `before` is a copy of `newest` from the begin of the reading.
        """
        return [
            f"{time.strftime('%H:%M:%S')} {key.decode()} has {found.get(key, 'nothing')}, not {number} or a newer value"
            for key, number in before.items()
            if found.get(key, -1) < number and self.deletions.get(key, -1) < number
        ]


class CompactedWorkload:
    """One idempotent producer and one reader of a compacted topic."""

    def __init__(self, library: Library, chance: random.Random) -> None:
        self.name = f"{library.name} compacted"
        self.topic = Topic(f"campaign-{library.name}-compacted", PARTITIONS, CONFIGS)
        self.topics = (self.topic,)
        self._library, self._chance = library, chance
        self._errors: Counter[str] = Counter()
        self._ledger = KeyLedger()
        self._lost = self._out_of_order = self._read = 0
        self._evidence: list[str] = []
        self._stopwatch = Stopwatch()
        self._enough = threading.Event()
        self._threads = [threading.Thread(target=each, daemon=True) for each in (self._write_all, self._read_all)]

    def start(self) -> None:
        for thread in self._threads:
            thread.start()

    def finish(self) -> None:
        """Write no more, and read everything once more."""
        self._enough.set()
        for thread in self._threads:
            thread.join(READ_SECONDS)
        self._read_once()

    def tally(self, at_end: bool) -> Tally:  # noqa: ARG002 - every reading is judged when it has come to its end
        ledger = self._ledger
        return Tally(
            sent=ledger.sent,
            acknowledged=ledger.acknowledged,
            failed=ledger.failed,
            read=self._read,
            lost=self._lost,
            out_of_order=self._out_of_order,
            longest_pause_seconds=self._stopwatch.longest_until_now(),
            errors=Counter(self._errors),
            evidence=list(self._evidence),
        )

    def _write_all(self) -> None:
        producer = Client(
            lambda: self._library.producer(Kind.IDEMPOTENT, self.topic.name, self.topic.name), self._errors
        )
        while not self._enough.wait(self._chance.expovariate(self._library.records_per_second / BATCH)):
            keys = self._chance.sample(range(KEYS), BATCH)
            try:
                self._write(producer, keys)
            except ClientError as fault:
                producer.note(fault)
        self._stopwatch.end()
        producer.close()

    def _write(self, producer: Client, keys: list[int]) -> None:
        """Write a new value for each of these keys, or delete it; the ledger records deletions before they are sent."""
        ledger, client = self._ledger, producer.get()
        first = ledger.sent
        records = []
        for number, key in enumerate(keys, first):
            name = b"key-%d" % key
            if self._chance.random() < DELETED_SHARE:
                ledger.deletions[name] = number
                records.append(ToSend(key % PARTITIONS, name, None))
            else:
                records.append(ToSend(key % PARTITIONS, name, b"%d " % number + b"." * PADDING_BYTES))
        ledger.sent += len(records)
        for number, (record, outcome) in enumerate(zip(records, client.send(records), strict=True), first):
            if isinstance(outcome, str):
                self._errors[outcome] += 1
                ledger.failed += 1
                producer.close()
            else:
                ledger.acknowledged += 1
                ledger.newest[record.key] = number
                self._stopwatch.progress()

    def _read_all(self) -> None:
        while not self._enough.wait(self._chance.expovariate(1 / MEAN_REREAD_SECONDS)):
            self._read_once()

    def _read_once(self) -> None:
        """Read the topic from its begin to its end, and validate it; restart a reading that its client aborts."""
        deadline = time.monotonic() + READ_SECONDS
        while time.monotonic() < deadline:
            before = dict(self._ledger.newest)
            reader = Client(
                lambda: self._library.reader(
                    self.topic.name, Isolation.UNCOMMITTED, dict.fromkeys(range(PARTITIONS), 0)
                ),
                self._errors,
            )
            try:
                self._judge(before, self._everything(reader, deadline))
            except ClientError as fault:
                reader.note(fault)
                time.sleep(PAUSE_SECONDS)
            else:
                return
            finally:
                reader.close()

    def _everything(self, reader: Client, deadline: float) -> list[Record]:
        records: list[Record] = []
        while time.monotonic() < deadline:
            some = reader.get().poll()
            records += some
            if not some and has_ended(reader.get()):
                break
        return records

    def _judge(self, before: dict[bytes, int], records: list[Record]) -> None:
        found: dict[bytes, int] = {}
        ends = [-1] * PARTITIONS
        for partition, offset, key, value in records:
            self._out_of_order += offset <= ends[partition]
            ends[partition] = offset
            if value is None:
                found.pop(key, None)
            else:
                found[key] = number_of(value)
        self._read += len(records)
        missing = self._ledger.missing(before, found)
        self._lost += len(missing)
        self._evidence = [*self._evidence, *missing][:MOST_EVIDENCE]
