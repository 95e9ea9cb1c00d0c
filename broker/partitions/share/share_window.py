"""The window of a share partition: its records that are neither before the start offset nor still to be read.

Pure; the clock is passed in. The window covers every offset from the start offset (Kafka's SPSO) to the end offset
(SPEO) with ranges of equal state, count, member and lock: a range is split only when a part of it changes, so that
whole batches cost no work per record. Ranges that touch and are equal are joined. Offsets that hold no record belong
to a range as well. An offset that nobody has acquired yet, or whose acquisition a crash has ended, is AVAILABLE with
the count of its earlier deliveries.

Every change that has to survive a crash is noted, and returned once by `drain_changes`.
"""

from __future__ import annotations

import heapq
from bisect import bisect_right
from collections.abc import Iterable, Iterator, Sequence
from itertools import groupby
from operator import attrgetter
from typing import Final, NamedTuple

from rotunda.broker.partitions.share.delivery import ACCEPT, ENDED, GAP, RELEASE, RENEW, DeliveryState, StateBatch
from rotunda.broker.protocol.error_codes import ErrorCode

_AVAILABLE: Final = int(DeliveryState.AVAILABLE)
_ACQUIRED: Final = int(DeliveryState.ACQUIRED)
_ACKNOWLEDGED: Final = int(DeliveryState.ACKNOWLEDGED)
_ARCHIVING: Final = int(DeliveryState.ARCHIVING)
_ARCHIVED: Final = int(DeliveryState.ARCHIVED)

_INVALID_REQUEST: Final = int(ErrorCode.INVALID_REQUEST)
_INVALID_RECORD_STATE: Final = int(ErrorCode.INVALID_RECORD_STATE)

#: Noted locks among which none are looked for that are over.
_LEAST_LOCKS: Final = 64

#: Memory of a window, and of each range and its lock.
WINDOW_BYTES: Final = 600
RANGE_BYTES: Final = 200

_first_of = attrgetter("first")


class LogBatch(NamedTuple):
    """A batch of the log; ``is_aborted``: its transaction is, and the group reads committed records only."""

    first: int
    last: int
    is_aborted: bool = False


class Acquired(NamedTuple):
    """A range of acquired records, as in a response."""

    first: int
    last: int
    delivery_count: int


class AcknowledgementBatch(NamedTuple):
    """Acknowledgements of a range: one type for all its offsets, or one for each."""

    first: int
    last: int
    types: Sequence[int]

    def runs(self) -> Iterator[tuple[int, int, int]]:
        """Yield (first, last, type) of the offsets with the same type."""
        if len(self.types) == 1:
            yield self.first, self.last, self.types[0]
            return
        first = self.first
        for kind, equal in groupby(self.types):
            last = first + sum(1 for _ in equal) - 1
            yield first, last, kind
            first = last + 1


class DeadLetter(NamedTuple):
    """Records that have to be written to the dead letter topic: rejected ones, or ones delivered too often."""

    first: int
    last: int
    delivery_count: int
    is_rejected: bool

    @property
    def size(self) -> int:
        """Number of records."""
        return self.last - self.first + 1


class DeliveryTerms(NamedTuple):
    """The settings of a group that decide what becomes of its records."""

    lock_ns: int
    count_limit: int
    most_in_flight: int
    is_renewable: bool = True
    has_dead_letters: bool = False

    def after_failure(self, count: int) -> int:
        """Return the state of a record that is released, or whose lock has run out, after this many deliveries."""
        return _AVAILABLE if count < self.count_limit else self.rejected

    @property
    def rejected(self) -> int:
        """The state of a record that is not to be delivered again although nobody has accepted it."""
        return _ARCHIVING if self.has_dead_letters else _ARCHIVED


class AcquireTerms(NamedTuple):
    """The limits of one fetch. ``is_strict``: not a record more than ``max_records``, else up to the batch's end."""

    member: str
    max_records: int
    batch_size: int
    is_strict: bool = False


class _Range:
    """Offsets with the same state. ``deadline_ns`` is that of the lock, 0 if they are not acquired."""

    __slots__ = ("count", "deadline_ns", "first", "last", "member", "state")

    def __init__(self, first: int, last: int, state: int, count: int, member: str = "", deadline_ns: int = 0) -> None:
        self.first, self.last, self.state, self.count = first, last, state, count
        self.member, self.deadline_ns = member, deadline_ns

    @property
    def size(self) -> int:
        return self.last - self.first + 1

    def continues(self, before: _Range) -> bool:
        """Whether this range follows one that is equal to it otherwise."""
        return (
            before.last + 1 == self.first
            and before.state == self.state
            and before.count == self.count
            and before.deadline_ns == self.deadline_ns
            and before.member == self.member
        )


class ShareWindow:
    """The records in flight of one share partition."""

    def __init__(self, start_offset: int, batches: Iterable[StateBatch] = ()) -> None:
        """Continue from stored state: what no batch covers before the last one was acquired, and is available."""
        self.start_offset = start_offset
        #: Whether a fetch was refused records because too many are in flight.
        self.is_blocked = False
        #: The offset after the window: the next to be read.
        self.next_offset = start_offset
        self._ranges: list[_Range] = []
        #: Offsets by state.
        self._sizes = [0] * len(DeliveryState)
        #: (deadline, first, last) of every lock; those that were acknowledged or renewed since are skipped.
        self._locks: list[tuple[int, int, int]] = []
        #: Ranges to be stored.
        self._changes: list[tuple[int, int]] = []
        self._letters: list[DeadLetter] = []
        self._counted_bytes = WINDOW_BYTES
        for batch in batches:
            self._extend(batch.first - 1, _AVAILABLE)
            self._extend(batch.last, batch.state, batch.delivery_count)
            if batch.state == _ARCHIVING:
                self._letters.append(DeadLetter(batch.first, batch.last, batch.delivery_count, is_rejected=True))
        self._advance()

    # ---- reading -------------------------------------------------------------------------------------------------

    @property
    def in_flight(self) -> int:
        """Number of offsets in the window."""
        return self.next_offset - self.start_offset

    @property
    def waiting(self) -> int:
        """Number of offsets in the window that wait for another delivery."""
        return self._sizes[_AVAILABLE]

    @property
    def complete_count(self) -> int:
        """Number of offsets in the window that are not delivered again."""
        return self._sizes[_ACKNOWLEDGED] + self._sizes[_ARCHIVED]

    @property
    def memory_bytes(self) -> int:
        """Memory of the Python objects."""
        return WINDOW_BYTES + RANGE_BYTES * len(self._ranges)

    def drain_growth(self) -> int:
        """Return the change of the memory in bytes since the last call; of a new window that of its ranges."""
        grown = self.memory_bytes - self._counted_bytes
        self._counted_bytes += grown
        return grown

    def fetch_offset(self, most_in_flight: int) -> int:
        """Return the offset from which a fetch has to read; -1 if nothing may be acquired now."""
        if self._sizes[_AVAILABLE]:
            return next(each.first for each in self._ranges if each.state == _AVAILABLE)
        self.is_blocked = self.in_flight >= most_in_flight
        return -1 if self.is_blocked else self.next_offset

    @property
    def has_news(self) -> bool:
        """Whether a fetch that found nothing to acquire may find something now, without a new record."""
        return self._sizes[_AVAILABLE] > 0 or self.is_blocked

    def batches(self) -> list[StateBatch]:
        """Return the whole window, for the status of a group."""
        return [StateBatch(each.first, each.last, each.state, each.count) for each in self._ranges]

    @property
    def range_count(self) -> int:
        """Number of ranges: the work of `highest_count` and `oldest_lock_ns`."""
        return len(self._ranges)

    @property
    def highest_count(self) -> int:
        """The highest delivery count of a record that may be delivered again; 0 without one."""
        return max((each.count for each in self._ranges if each.state in (_AVAILABLE, _ACQUIRED)), default=0)

    @property
    def oldest_lock_ns(self) -> int | None:
        """The time at which the first lock of an acquired record runs out."""
        return min((each.deadline_ns for each in self._ranges if each.state == _ACQUIRED), default=None)

    @property
    def next_deadline_ns(self) -> int | None:
        """The time at which the next lock may run out."""
        return self._locks[0][0] if self._locks else None

    # ---- acquiring -----------------------------------------------------------------------------------------------

    def acquire(
        self, log_batches: Iterable[LogBatch], limits: AcquireTerms, terms: DeliveryTerms, now_ns: int
    ) -> list[Acquired]:
        """Acquire records for a member from batches that were read at `fetch_offset`, as many as the limits allow."""
        acquired: list[Acquired] = []
        deadline_ns = now_ns + terms.lock_ns
        left = limits.max_records
        offset = self.fetch_offset(terms.most_in_flight)
        for batch in log_batches:
            # The log no longer has the offsets before the batch.
            self._archive(offset, batch.first - 1)
            is_full = self.in_flight >= terms.most_in_flight
            if left <= 0 or offset < 0 or (is_full and batch.first >= self.next_offset):
                break
            self._extend(batch.first - 1, _ARCHIVED)
            offset = batch.last + 1
            if batch.first >= self.next_offset and not (batch.is_aborted or limits.is_strict):
                # The usual case: a whole batch that no member has had before.
                self._extend(batch.last, _ACQUIRED, 1, limits.member, deadline_ns)
                acquired.append(Acquired(batch.first, batch.last, 1))
                left -= batch.last - batch.first + 1
                continue
            if not is_full:
                self._extend(batch.last, _AVAILABLE)
            if batch.is_aborted:
                self._archive(batch.first, batch.last)
                continue
            some, is_last = self._acquire_batch(batch, limits, terms, deadline_ns, left)
            left -= sum(each.last - each.first + 1 for each in some)
            acquired += some
            if is_last:
                break
        self._drop_untouched()
        if acquired:
            self._lock(deadline_ns, acquired[0].first, acquired[-1].last)
        self._advance()
        return _in_pieces(acquired, limits.batch_size, is_whole=limits.is_strict)

    def _acquire_batch(
        self, batch: LogBatch, limits: AcquireTerms, terms: DeliveryTerms, deadline_ns: int, left: int
    ) -> tuple[list[Acquired], bool]:
        """Acquire the available records of a batch; return them, and whether no more may be acquired.

        A record that has failed often is delivered with ever fewer others, and at last alone: one of them may be the
        one that makes its consumers fail.
        """
        first = max(batch.first, self.start_offset)
        careful_from = max(2, -(-terms.count_limit // 2))
        acquired: list[Acquired] = []
        for each in self._available_in(first, batch.last):
            last = each.last
            is_suspect = each.count >= careful_from
            if is_suspect:
                if acquired or left < limits.max_records:
                    return acquired, True
                most = max(1, (batch.last - first + 1) >> (each.count - careful_from + 1))
                if terms.count_limit > 2 and each.count >= terms.count_limit - 1:
                    most = 1
                last = min(last, each.first + most - 1)
            if limits.is_strict:
                last = min(last, each.first + left - 1)
            if last >= each.first:
                acquired.append(Acquired(each.first, last, each.count + 1))
                self._set(each.first, last, _ACQUIRED, each.count + 1, limits.member, deadline_ns)
                left -= last - each.first + 1
            if is_suspect or (limits.is_strict and left <= 0):
                return acquired, True
        return acquired, False

    def _available_in(self, first: int, last: int) -> list[_Range]:
        """Return copies of the available ranges, cut to [first, last]."""
        return [
            _Range(max(each.first, first), min(each.last, last), _AVAILABLE, each.count)
            for each in self._between(first, last)
            if each.state == _AVAILABLE
        ]

    def _archive(self, first: int, last: int) -> None:
        """Archive available offsets whose records are aborted, or no longer in the log; not stored."""
        for each in self._available_in(max(first, self.start_offset), last):
            self._set(each.first, each.last, _ARCHIVED, each.count)

    def _drop_untouched(self) -> None:
        """Remove the end of the window that no member has ever acquired: it is read again."""
        while self._ranges:
            last = self._ranges[-1]
            if last.state != _AVAILABLE or last.count:
                break
            self._ranges.pop()
            self._sizes[_AVAILABLE] -= last.size
            self.next_offset = last.first

    # ---- acknowledging -------------------------------------------------------------------------------------------

    def acknowledge(
        self, member: str, batches: Sequence[AcknowledgementBatch], terms: DeliveryTerms, now_ns: int
    ) -> int:
        """Apply a member's acknowledgements, all or none; return the error code."""
        error = self._validate(member, batches, is_renewable=terms.is_renewable)
        if error:
            return error
        deadline_ns = now_ns + terms.lock_ns
        for batch in batches:
            for first, last, kind in batch.runs():
                if last >= self.start_offset:
                    self._apply(max(first, self.start_offset), last, kind, terms, deadline_ns)
        self._advance()
        return 0

    def _validate(self, member: str, batches: Sequence[AcknowledgementBatch], *, is_renewable: bool) -> int:
        last_of_previous = -1
        for batch in batches:
            first = max(batch.first, self.start_offset)
            if not is_renewable and RENEW in batch.types:
                return _INVALID_RECORD_STATE
            if batch.last < self.start_offset:
                continue
            if batch.last >= self.next_offset:
                return _INVALID_REQUEST if self._ranges else _INVALID_RECORD_STATE
            if first <= last_of_previous:
                return _INVALID_RECORD_STATE
            for each in self._between(first, batch.last):
                if each.state != _ACQUIRED or each.member != member:
                    return _INVALID_RECORD_STATE
            last_of_previous = batch.last
        return 0

    def _apply(self, first: int, last: int, kind: int, terms: DeliveryTerms, deadline_ns: int) -> None:
        """Apply one acknowledge type to acquired offsets."""
        for each in self._between(first, last):
            begin, end = max(each.first, first), min(each.last, last)
            if kind == RENEW:
                self._set(begin, end, _ACQUIRED, each.count, each.member, deadline_ns)
            elif kind == ACCEPT:
                self._end(begin, end, _ACKNOWLEDGED, each.count)
            elif kind == RELEASE:
                self._end(begin, end, terms.after_failure(each.count), each.count)
            else:
                self._end(begin, end, _ARCHIVED if kind == GAP else terms.rejected, each.count, is_rejected=True)
        if kind == RENEW:
            self._lock(deadline_ns, first, last)

    def _lock(self, deadline_ns: int, first: int, last: int) -> None:
        """Note a lock. Those that are over are removed once they are the most: many renewals need no more memory."""
        heapq.heappush(self._locks, (deadline_ns, first, last))
        if len(self._locks) > 2 * len(self._ranges) + _LEAST_LOCKS:
            held = (each for each in self._ranges if each.state == _ACQUIRED)
            self._locks = sorted((each.deadline_ns, each.first, each.last) for each in held)

    def release(self, member: str, terms: DeliveryTerms) -> bool:
        """Release all records that a member has acquired; False if there are none."""
        if not self._sizes[_ACQUIRED]:
            return False
        held = [each for each in self._ranges if each.state == _ACQUIRED and each.member == member]
        for each in held:
            self._end(each.first, each.last, terms.after_failure(each.count), each.count)
        self._advance()
        return bool(held)

    def expire(self, now_ns: int, terms: DeliveryTerms) -> int:
        """End the locks that have run out; return the number of their records."""
        expired = 0
        while self._locks and self._locks[0][0] <= now_ns:
            deadline_ns, first, last = heapq.heappop(self._locks)
            first = max(first, self.start_offset)
            for each in self._between(first, last):
                if each.state == _ACQUIRED and each.deadline_ns == deadline_ns:
                    begin, end = max(each.first, first), min(each.last, last)
                    self._end(begin, end, terms.after_failure(each.count), each.count)
                    expired += end - begin + 1
        self._advance()
        return expired

    def archived(self, first: int, last: int) -> None:
        """Archive records that were written to the dead letter topic."""
        for each in self._between(max(first, self.start_offset), last):
            if each.state == _ARCHIVING:
                self._end(max(each.first, first), min(each.last, last), _ARCHIVED, each.count)
        self._advance()

    # ---- the log and the store -----------------------------------------------------------------------------------

    def log_start_moved(self, log_start: int) -> bool:
        """Move the start offset to the log's start; return whether it was before.

        Acknowledgements and locks of the removed records have no effect.
        """
        if log_start <= self.start_offset:
            return False
        self._advance(log_start)
        return True

    def drain_changes(self) -> list[StateBatch]:
        """Return the changed ranges in the window since the last call, to be stored with `start_offset`."""
        changes, self._changes = self._changes, []
        found: list[StateBatch] = []
        for changed, last in changes:
            first = max(changed, self.start_offset)
            found += [
                StateBatch(max(each.first, first), min(each.last, last), each.state, each.count)
                for each in self._between(first, last)
                if each.state != _ACQUIRED
            ]
        return found

    def drain_letters(self) -> list[DeadLetter]:
        """Return the records that have become ARCHIVING since the last call."""
        letters, self._letters = self._letters, []
        return letters

    # ---- ranges --------------------------------------------------------------------------------------------------

    def _between(self, first: int, last: int) -> list[_Range]:
        """Return the ranges that overlap [first, last], in order."""
        ranges = self._ranges
        if not ranges or last < first:
            return []
        begin = max(bisect_right(ranges, first, key=_first_of) - 1, 0)
        end = bisect_right(ranges, last, begin, key=_first_of)
        return ranges[begin:end]

    def _extend(self, last: int, state: int, count: int = 0, member: str = "", deadline_ns: int = 0) -> None:
        """Move the end of the window to ``last``, unless it is there already."""
        if last < self.next_offset:
            return
        new = _Range(self.next_offset, last, state, count, member, deadline_ns)
        self._sizes[state] += new.size
        self.next_offset = last + 1
        if self._ranges and new.continues(self._ranges[-1]):
            self._ranges[-1].last = last
        else:
            self._ranges.append(new)

    def _end(self, first: int, last: int, state: int, count: int, *, is_rejected: bool = False) -> None:
        """Set a state that has to be stored."""
        self._set(first, last, state, count)
        if state == _ARCHIVING:
            self._letters.append(DeadLetter(first, last, count, is_rejected))
        self._changes.append((first, last))

    def _set(self, first: int, last: int, state: int, count: int, member: str = "", deadline_ns: int = 0) -> None:
        """Set the state of offsets that are within one range."""
        ranges = self._ranges
        at = bisect_right(ranges, first, key=_first_of) - 1
        old = ranges[at]
        self._sizes[old.state] -= last - first + 1
        self._sizes[state] += last - first + 1
        new = [_Range(first, last, state, count, member, deadline_ns)]
        if old.first < first:
            new.insert(0, _Range(old.first, first - 1, old.state, old.count, old.member, old.deadline_ns))
        if last < old.last:
            new.append(_Range(last + 1, old.last, old.state, old.count, old.member, old.deadline_ns))
        begin, end = max(at - 1, 0), min(at + 2, len(ranges))
        joined: list[_Range] = []
        for each in (*ranges[begin:at], *new, *ranges[at + 1 : end]):
            if joined and each.continues(joined[-1]):
                joined[-1].last = each.last
            else:
                joined.append(each)
        ranges[begin:end] = joined

    def _advance(self, log_start: int = -1) -> None:
        """Move the start offset over ended records, and those before the log's start; locks before it are over."""
        ended = 0
        for each in self._ranges:
            if each.state not in ENDED and each.last >= log_start:
                break
            self._sizes[each.state] -= each.size
            self.start_offset = each.last + 1
            ended += 1
        del self._ranges[:ended]
        if self.start_offset < log_start:
            for each in self._ranges[:1]:
                self._sizes[each.state] -= log_start - each.first
                each.first = log_start
            self.start_offset = log_start
            self.next_offset = max(self.next_offset, log_start)
        while self._locks and self._locks[0][2] < self.start_offset:
            heapq.heappop(self._locks)


def _in_pieces(acquired: list[Acquired], batch_size: int, *, is_whole: bool) -> list[Acquired]:
    """Join ranges that touch and have equal counts, up to ``batch_size`` records a piece."""
    pieces: list[Acquired] = []
    for each in acquired:
        last = pieces[-1] if pieces else None
        if (
            last is not None
            and last.last + 1 == each.first
            and last.delivery_count == each.delivery_count
            and (is_whole or batch_size <= 0 or last.last - last.first + 1 < batch_size)
        ):
            pieces[-1] = last._replace(last=each.last)
        else:
            pieces.append(each)
    return pieces
