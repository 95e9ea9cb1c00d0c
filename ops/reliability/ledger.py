"""The ledger of one topic: the records that its writer sent, their outcomes, and the records that a reader found.

A record's value is its number in its partition, so read records can be compared with sent ones. Outcomes and positions
are arrays indexed by that number: eight bytes a record each, so that a campaign of hours stays small. Knows no client
library. One thread writes, one reads, any may validate.
"""

from array import array
from collections import Counter
from dataclasses import dataclass, field, fields

import numpy as np

from ops.clients.library import ACKNOWLEDGED

#: Outcomes of a record other than the offset at which it was acknowledged.
PENDING, FAILED, ABORTED = -1, -2, -4
NOWHERE = -1
#: Number of faults of one kind that are reported individually.
MOST_EVIDENCE = 5
#: The fields of a tally that count violations.
FAULTS = ("lost", "twice", "out_of_order", "misplaced", "aborted_seen", "torn", "miscounted")


@dataclass
class Tally:
    """The observations of the writers and readers of one workload; tallies add.

    `repeated_by_client` are records of a plain producer that sent them again itself; `redelivered` are deliveries by a
    share group after the first, `miscounted` those whose delivery count did not rise after a release. `torn` counts
    transactions of which a reader saw a part. `errors` are counted by their text; `evidence` are lines on the first few
    faults.
    """

    sent: int = 0
    acknowledged: int = 0
    failed: int = 0
    aborted: int = 0
    read: int = 0
    lost: int = 0
    twice: int = 0
    out_of_order: int = 0
    misplaced: int = 0
    aborted_seen: int = 0
    torn: int = 0
    miscounted: int = 0
    repeated_by_client: int = 0
    redelivered: int = 0
    longest_pause_seconds: float = 0.0
    errors: Counter[str] = field(default_factory=Counter)
    evidence: list[str] = field(default_factory=list)

    def __add__(self, other: "Tally") -> "Tally":
        added = {each.name: getattr(self, each.name) + getattr(other, each.name) for each in fields(Tally)}
        added["longest_pause_seconds"] = max(self.longest_pause_seconds, other.longest_pause_seconds)
        return Tally(**added)

    @property
    def faults(self) -> int:
        return sum(getattr(self, name) for name in FAULTS)


class Ledger:
    """The writer's side of one topic. `is_exact`: no client sends a record of it a second time by itself."""

    def __init__(self, partitions: int, is_exact: bool = True) -> None:
        self.is_exact = is_exact
        self.outcomes = [array("q") for _ in range(partitions)]
        self.undecided: list[list[tuple[int, int]]] = []

    @property
    def partitions(self) -> int:
        return len(self.outcomes)

    def send(self, partition: int) -> int:
        """Return the number of the next record of a partition, which is about to be sent."""
        self.outcomes[partition].append(PENDING)
        return len(self.outcomes[partition]) - 1

    def settle(self, partition: int, number: int, outcome: int) -> None:
        """Note the outcome of a record: the offset that the broker named, or one of the constants above."""
        self.outcomes[partition][number] = outcome

    def leave_undecided(self, records: list[tuple[int, int]]) -> None:
        """Note a transaction with unknown outcome for its client: either all of it is committed or nothing."""
        self.undecided.append(records)


class Reading:
    """One reader's side: where it found which record, from the beginning of every partition on."""

    def __init__(self, ledger: Ledger) -> None:
        self.ledger = ledger
        self.next_offsets = [0] * ledger.partitions
        self.read = 0
        self._found = [array("q") for _ in range(ledger.partitions)]
        self._repeated = 0
        self._strange = 0
        self._evidence: list[str] = []

    def take(self, partition: int, offset: int, value: bytes | None) -> None:
        """Note a read record, whose offset must be above the previous one."""
        self.read += 1
        if offset < self.next_offsets[partition]:
            self._strange += 1
            self._note(f"offset {offset} of partition {partition} was read after {self.next_offsets[partition] - 1}")
        self._find(partition, offset, number_of(value))
        self.next_offsets[partition] = offset + 1

    def _find(self, partition: int, offset: int, number: int) -> None:
        found = self._found[partition]
        if not 0 <= number < len(self.ledger.outcomes[partition]):
            self._strange += 1
            self._note(f"record {number} at offset {offset} of partition {partition} was never sent")
            return
        if number >= len(found):
            found.extend([NOWHERE] * (number + 1 - len(found)))
        if found[number] != NOWHERE:
            self._repeated += 1
            if self.ledger.is_exact:
                self._note(f"record {number} of partition {partition} is at {found[number]} and again at {offset}")
        else:
            found[number] = offset

    def has_everything(self) -> bool:
        return not self.judge(at_end=True).lost

    def judge(self, at_end: bool) -> Tally:
        """Return the tally so far. Before the end only that is lost which this reader has passed by."""
        tally = Tally(read=self.read, misplaced=self._strange, evidence=list(self._evidence))
        if self.ledger.is_exact:
            tally.twice = self._repeated
        else:
            tally.repeated_by_client = self._repeated
        for partition in range(self.ledger.partitions):
            self._judge_partition(partition, tally, at_end)
        tally.torn = sum(self._is_torn(records) for records in list(self.ledger.undecided)) if at_end else 0
        return tally

    def _judge_partition(self, partition: int, tally: Tally, at_end: bool) -> None:
        # The reader continues meanwhile: read its position before its findings.
        passed = self.next_offsets[partition]
        outcomes = copied(self.ledger.outcomes[partition])
        found = self._positions(partition, len(outcomes))
        acknowledged = (outcomes >= 0) | (outcomes == ACKNOWLEDGED)
        tally.sent += len(outcomes)
        tally.acknowledged += int(acknowledged.sum())
        tally.failed += int((outcomes == FAILED).sum())
        tally.aborted += int((outcomes == ABORTED).sum())
        passed_by = acknowledged if at_end else (outcomes >= 0) & (outcomes < passed)
        is_found = found != NOWHERE
        wrongs = {
            "lost": passed_by & ~is_found,
            "aborted_seen": (outcomes == ABORTED) & is_found,
            "misplaced": (outcomes >= 0) & is_found & (found != outcomes),
            "out_of_order": is_found & acknowledged & comes_before_an_earlier(np.where(acknowledged, found, NOWHERE)),
        }
        for name, is_wrong in wrongs.items():
            if self.ledger.is_exact or name in ("lost", "aborted_seen"):
                setattr(tally, name, getattr(tally, name) + int(is_wrong.sum()))
                tally.evidence += [
                    f"{name.replace('_', ' ')}: record {number} of partition {partition}, acknowledged at "
                    f"{outcomes[number]}, read at {found[number]}"
                    for number in np.flatnonzero(is_wrong)[:MOST_EVIDENCE]
                ]

    def _note(self, evidence: str) -> None:
        if len(self._evidence) < MOST_EVIDENCE:
            self._evidence.append(evidence)

    def _positions(self, partition: int, length: int) -> np.ndarray:
        """Return where each of the first `length` records was found, NOWHERE for the others."""
        found = np.full(length, NOWHERE, dtype=np.int64)
        have = copied(self._found[partition])[:length]
        found[: len(have)] = have
        return found

    def _is_torn(self, records: list[tuple[int, int]]) -> bool:
        seen = {len(self._found[p]) > number and self._found[p][number] != NOWHERE for p, number in records}
        return len(seen) > 1


def comes_before_an_earlier(positions: np.ndarray) -> np.ndarray:
    """Return which of the records, in the order of their numbers, has a lower position than one sent before it."""
    return positions < np.maximum.accumulate(positions)


def copied(numbers: "array[int]") -> np.ndarray:
    """Return a copy of an array that another thread may extend now: an array with a view cannot be extended."""
    return np.frombuffer(numbers[:], dtype=np.int64)


def number_of(value: bytes | None) -> int:
    """Return the number that a record's value is; -1 for one that no writer of ours made."""
    digits = (value or b"").partition(b" ")[0]
    return int(digits) if digits.isdigit() else -1
