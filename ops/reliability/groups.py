"""Consumer groups: members that join and leave read a topic together, and each commit must hold.

The first offset that a member gets after partitions were assigned to it must be neither below the committed one (a lost
commit: records are repeated) nor above the highest offset that any member has read so far (records that no member
gets). In between it gets every offset once, in order. The topic is one without transactions, so that its offsets have
no gaps.
"""

from __future__ import annotations

import random
import threading
import time
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Sequence
from typing import Protocol

from ops.clients.library import ClientError, Isolation, Library, Membership, Record
from ops.reliability.ledger import MOST_EVIDENCE, Tally
from ops.reliability.workloads import PAUSE_SECONDS, READ_SECONDS, Client, Stopwatch, Topic, TopicWorkload

MEMBERS = 2
#: Mean time for which a member stays, until it leaves and another one joins.
MEAN_STAY_SECONDS = 20.0


class GroupLedger:
    """The offsets that a group's members have read and committed, by partition."""

    def __init__(self, partitions: int) -> None:
        self.committed = [0] * partitions
        self.reached = [0] * partitions
        self.read = self.twice = self.lost = 0
        self.evidence: list[str] = []
        self._lock = threading.Lock()

    def take(self, partition: int, offset: int, expected: int | None, floor: int) -> None:
        """Note a record of a member that expects this offset; None: it is the first since its assignment."""
        with self._lock:
            low, high = (floor, self.reached[partition]) if expected is None else (expected, expected)
            self.read += 1
            self.twice += max(0, low - offset)
            self.lost += max(0, offset - high)
            if not low <= offset <= high and len(self.evidence) < MOST_EVIDENCE:
                self.evidence.append(
                    f"{time.strftime('%H:%M:%S')} a member got offset {offset} of partition {partition} "
                    f"{'first' if expected is None else 'next'}, where {low} to {high} was to come"
                )
            self.reached[partition] = max(self.reached[partition], offset + 1)

    def commit(self, offsets: dict[int, int]) -> None:
        with self._lock:
            for partition, offset in offsets.items():
                self.committed[partition] = offset

    def doubt(self, offsets: dict[int, int]) -> None:
        """Note a failed commit that may still have been applied.

        aiokafka retries a commit in any generation that it is in by then. So it may arrive after a commit of the
        partition's new member, and the broker accepts it, like Kafka.
        """
        with self._lock:
            for partition, offset in offsets.items():
                self.committed[partition] = min(self.committed[partition], offset)


class MemberView:
    """The offsets that one member expects of each partition since it was assigned."""

    def __init__(self, ledger: GroupLedger) -> None:
        self._ledger = ledger
        self._expected: dict[int, int | None] = {}
        self._floors: dict[int, int] = {}

    def assigned(self, partitions: Sequence[int]) -> None:
        """Reset the expected offsets of newly assigned partitions."""
        for partition in partitions:
            self._floors[partition] = self._ledger.committed[partition]
            self._expected[partition] = None

    def take(self, records: Sequence[Record]) -> dict[int, int]:
        """Compare records with the expected offsets; return the offsets to be committed after them."""
        for partition, offset, _, _ in records:
            self._ledger.take(partition, offset, self._expected.get(partition), self._floors.get(partition, 0))
            self._expected[partition] = offset + 1
        return {record.partition: record.offset + 1 for record in records}


class GroupLedgers(Protocol):
    """The counts of a group's ledger."""

    read: int
    twice: int
    evidence: list[str]


class Members(ABC):
    """The members of a group of any kind, which read the records of an idempotent producer, each in a thread.

    `missing` returns how many records below these ends no member has had.
    """

    topics: tuple[Topic, ...] = ()

    def __init__(self, library: Library, kind: str, source: TopicWorkload, ledger: GroupLedgers) -> None:
        self.name = f"{library.name} {kind} group"
        self._library, self._source, self._ledger = library, source, ledger
        self._errors: Counter[str] = Counter()
        self._stopwatch = Stopwatch()
        self._lost = 0
        self._ended = threading.Event()
        self._threads = [threading.Thread(target=self._run_members, daemon=True) for _ in range(MEMBERS)]

    def start(self) -> None:
        for thread in self._threads:
            thread.start()

    def finish(self) -> None:
        """Wait until the group has had everything that was written, and end it."""
        self._source.written.wait(READ_SECONDS)
        ends = ends_of(self._library, self._source.topic, self._errors)
        deadline = time.monotonic() + READ_SECONDS
        while time.monotonic() < deadline and self.missing(ends):
            time.sleep(PAUSE_SECONDS)
        self._lost = self.missing(ends)
        self._stopwatch.end()
        self._ended.set()
        for thread in self._threads:
            thread.join(READ_SECONDS)

    def tally(self, at_end: bool) -> Tally:  # noqa: ARG002 - the remaining records were counted at the end
        return Tally(
            read=self._ledger.read,
            twice=self._ledger.twice,
            lost=self._lost,
            longest_pause_seconds=self._stopwatch.longest_until_now(),
            errors=Counter(self._errors),
            evidence=list(self._ledger.evidence),
        )

    @abstractmethod
    def missing(self, ends: dict[int, int]) -> int: ...

    @abstractmethod
    def _run_members(self) -> None:
        """Be one member after the other."""


class GroupWorkload(Members):
    """A group of one protocol of consumers."""

    def __init__(self, library: Library, protocol: str, source: TopicWorkload, chance: random.Random) -> None:
        self._membership, self._chance = Membership(f"campaign-{library.name}-{protocol}", protocol), chance
        self._ledger = GroupLedger(source.topic.partitions)
        super().__init__(library, protocol, source, self._ledger)

    def tally(self, at_end: bool) -> Tally:
        tally = super().tally(at_end)
        tally.lost += self._ledger.lost
        return tally

    def missing(self, ends: dict[int, int]) -> int:
        """Return how many records no member has read."""
        return sum(max(0, end - self._ledger.reached[partition]) for partition, end in ends.items())

    def _run_members(self) -> None:
        while not self._ended.is_set():
            self._run_member(time.monotonic() + self._chance.expovariate(1 / MEAN_STAY_SECONDS))

    def _run_member(self, end: float) -> None:
        view = MemberView(self._ledger)
        member = Client(
            lambda: self._library.member(self._source.topic.name, self._membership, view.assigned),
            self._errors,
        )
        while time.monotonic() < end and not self._ended.is_set():
            offsets: dict[int, int] = {}
            try:
                offsets = view.take(member.get().poll())
                if offsets:
                    member.get().commit(offsets)
                    self._ledger.commit(offsets)
                    self._stopwatch.progress()
            except ClientError as fault:
                self._ledger.doubt(offsets)
                member.note(fault)
                self._ended.wait(PAUSE_SECONDS)
        member.close()


def ends_of(library: Library, topic: Topic, errors: Counter[str]) -> dict[int, int]:
    """Return the ends of a topic, once a client returns them."""
    offsets = dict.fromkeys(range(topic.partitions), 0)
    reader = Client(lambda: library.reader(topic.name, Isolation.UNCOMMITTED, offsets), errors)
    deadline = time.monotonic() + READ_SECONDS
    while time.monotonic() < deadline:
        try:
            return reader.get().ends()
        except ClientError as fault:
            reader.note(fault)
            time.sleep(PAUSE_SECONDS)
        finally:
            reader.close()
    return {}
