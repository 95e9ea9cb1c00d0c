"""The delivery states of a share group's records, and ranges of offsets that share one.

Pure. The numbers are those of Kafka's records in `__share_group_state`.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import IntEnum
from operator import attrgetter
from typing import Final, NamedTuple


class DeliveryState(IntEnum):
    """The state of a record in a share group. ACQUIRED is never stored."""

    AVAILABLE = 0
    ACQUIRED = 1
    ACKNOWLEDGED = 2
    ARCHIVING = 3
    """Rejected or delivered too often; it has to be written to the dead letter topic."""
    ARCHIVED = 4


#: Acknowledge types, as in requests.
GAP, ACCEPT, RELEASE, REJECT, RENEW = range(5)


@dataclass(slots=True)
class DeliveryCounts:
    """Records of a share partition by what became of them: since its state was loaded or reset, not stored."""

    delivered: int = 0
    redelivered: int = 0
    accepted: int = 0
    released: int = 0
    rejected: int = 0
    locks_expired: int = 0
    dead_letters: int = 0

    def acquired(self, records: int, delivery_count: int) -> None:
        """Count records that a member has acquired."""
        self.delivered += records
        if delivery_count > 1:
            self.redelivered += records

    def acknowledged(self, kind: int, records: int) -> None:
        """Count records by acknowledge type. Gaps are no records, and a renewal ends nothing."""
        if kind == ACCEPT:
            self.accepted += records
        elif kind == RELEASE:
            self.released += records
        elif kind == REJECT:
            self.rejected += records


_last_of = attrgetter("last")

#: States of records that are not delivered again.
ENDED: Final = frozenset({int(DeliveryState.ACKNOWLEDGED), int(DeliveryState.ARCHIVED)})


class StateBatch(NamedTuple):
    """A range of offsets with one state and delivery count, as in a stored record."""

    first: int
    last: int
    state: int
    delivery_count: int


def merge_batches(stored: Sequence[StateBatch], written: Iterable[StateBatch], start_offset: int) -> list[StateBatch]:
    """Return stored batches with the written ones over them, from ``start_offset`` on, disjoint and in order.

    Where batches overlap the higher delivery count wins, and at an equal count the higher state. Batches that touch
    and are equal otherwise are joined.
    """
    merged = _from(start_offset, stored)
    for batch in _from(start_offset, written):
        _lay_over(merged, batch)
    return merged


def _from(start_offset: int, batches: Iterable[StateBatch]) -> list[StateBatch]:
    return [
        each if each.first >= start_offset else each._replace(first=start_offset)
        for each in batches
        if each.last >= start_offset
    ]


def _lay_over(batches: list[StateBatch], new: StateBatch) -> None:
    """Insert a batch into disjoint ones in order; only those that overlap or touch it are visited."""
    begin = end = bisect_left(batches, new.first - 1, key=_last_of)
    pieces: list[StateBatch] = []
    at = new.first
    while end < len(batches) and batches[end].first <= new.last + 1:
        old = batches[end]
        end += 1
        if old.first < new.first:
            pieces.append(old._replace(last=min(old.last, new.first - 1)))
        first, last = max(old.first, new.first), min(old.last, new.last)
        if first <= last:
            if at < first:
                pieces.append(new._replace(first=at, last=first - 1))
            wins = (new.delivery_count, new.state) > (old.delivery_count, old.state)
            pieces.append((new if wins else old)._replace(first=first, last=last))
            at = last + 1
        if old.last > new.last:
            if at <= new.last:
                pieces.append(new._replace(first=at))
                at = new.last + 1
            pieces.append(old._replace(first=max(old.first, new.last + 1)))
    if at <= new.last:
        pieces.append(new._replace(first=at))
    batches[begin:end] = _joined(pieces)


def _joined(pieces: Iterable[StateBatch]) -> list[StateBatch]:
    joined: list[StateBatch] = []
    for piece in pieces:
        last = joined[-1] if joined else None
        if last is not None and last.last + 1 == piece.first and last[2:] == piece[2:]:
            joined[-1] = last._replace(last=piece.last)
        else:
            joined.append(piece)
    return joined
