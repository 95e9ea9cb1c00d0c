"""Meters: one entity's usage of one quota, added to by this process and summed over all processes.

Runs in targets and processors. Usage is accumulated here, in plain numbers, and recorded in shared memory when it
reaches the amount allowed in `UNRECORDED_S`, and at least once a second. So a request costs one addition while its
client is far below its limit, and the error of every rate is bounded by that amount.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from rotunda.shm.recorder_layout import THROTTLED_BY
from rotunda.shm.tables.quota_rates import MOST_THROTTLE_MS, Windows, measure, record, store_tokens, throttle_ms, tokens
from rotunda.shm.tables.quota_tables import (
    FETCH,
    FIRST_SAMPLE,
    PRODUCE,
    QUOTAS,
    REQUEST_RATE,
    THROTTLE_MS,
    THROTTLED,
    THROTTLED_UNTIL_MS,
)

if TYPE_CHECKING:
    from rotunda.broker.quotas.entities import Limit
    from rotunda.shm.tables.quota_tables import QuotaTable, QuotaTableWriter

#: Usage below the quota's allowance for this time is not recorded immediately.
UNRECORDED_S: Final = 0.01
#: Longest time that usage stays unrecorded, while its client is active.
UNRECORDED_NS: Final = 1_000_000_000

_NS_PER_MS: Final = 1_000_000

#: Larger limits are shown as this one: tables store thousandths in one word.
_MOST_SHOWN: Final = 9e15

#: request_percentage: ns of a thread in one percent of a second.
NS_PER_PERCENT: Final = 10_000_000


_OF_ALL: Final = {
    PRODUCE: "broker.quota.produce.bytes",
    FETCH: "broker.quota.fetch.bytes",
    REQUEST_RATE: "broker.quota.request.rate",
}


class Book:
    """The quota tables as one owner sees them: its own for writing, the others for reading."""

    __slots__ = ("mark_ns", "others", "spent_ns", "windows", "writer")

    def __init__(self, writer: QuotaTableWriter, others: list[QuotaTable], windows: Windows) -> None:
        self.writer = writer
        self.others = others
        self.windows = windows
        #: The time up to which this process's time is charged.
        self.mark_ns = 0
        #: Time spent on requests that are committed together, until it is divided among their clients.
        self.spent_ns = 0

    def begin_one(self, now_ns: int) -> None:
        """Start one client's own time: the time before it was spent on requests that are committed together."""
        self.spent_ns += now_ns - self.mark_ns
        self.mark_ns = now_ns


class Meter:
    """An entity's slot in the table of this owner, and its throttle times."""

    __slots__ = ("_book", "_entity", "_limit", "_quota", "limit", "throttled_by")

    def __init__(self, book: Book, quota: str, limit: Limit, unit: int = 1) -> None:
        """Measure a limit; ``unit`` is recorded for one unit of it."""
        self._book = book
        self._quota = QUOTAS.index(quota)
        self._limit = limit
        self._entity = limit.entity(quota)
        self.limit = limit.value * unit
        #: The request log's code for throttling by this quota.
        self.throttled_by = 1 + THROTTLED_BY.index(_OF_ALL[quota] if limit.is_of_all else quota)

    def throttled(self, ms: int, now_ns: int, count: int = 1) -> None:
        """Record for monitoring that ``count`` responses carried a throttle time for this quota."""
        now_ms = now_ns // _NS_PER_MS
        at, words = self._slot(now_ms), self._book.writer.words
        words[at + THROTTLED] += count
        words[at + THROTTLE_MS] += count * ms
        words[at + THROTTLED_UNTIL_MS] = max(words[at + THROTTLED_UNTIL_MS], now_ms + ms)

    def _slot(self, now_ms: int) -> int:
        limit = self._limit
        scope = limit.user, limit.client_id
        return self._book.writer.take(
            self._entity, self._quota, scope, round(min(limit.value, _MOST_SHOWN) * 1000), now_ms
        )


class RateMeter(Meter):
    """A quota that is a rate: bytes, or time of a thread."""

    __slots__ = ("_most_ms", "due_ns", "enough", "unrecorded")

    def __init__(self, book: Book, quota: str, limit: Limit, unit: int = 1, *, most_ms: int = 2**31 - 1) -> None:
        """Return throttle times of ``most_ms`` at most."""
        super().__init__(book, quota, limit, unit)
        self._most_ms = most_ms
        #: Usage that is not recorded yet; at this amount or at this time `settle` must be called.
        self.unrecorded = 0
        self.enough = self.limit * UNRECORDED_S
        self.due_ns = 0

    def charge(self, used: int, now_ns: int) -> int:
        """Add usage; return its client's throttle time in ms. HOT."""
        self.unrecorded += used
        return 0 if self.unrecorded < self.enough and now_ns < self.due_ns else self.settle(now_ns)

    def settle(self, now_ns: int) -> int:
        """Record the usage; return its client's throttle time in ms."""
        total, elapsed_ms = self._record(now_ns)
        return min(self._most_ms, throttle_ms(total, elapsed_ms, self.limit))

    def charge_unless_throttled(self, used: int, now_ns: int) -> int:
        """Charge usage unless its client must be throttled for it; return the throttle time in ms (`E12`).

        A response larger than all windows may hold passes if they contain no other usage; otherwise it never would.
        """
        ms = self.charge(used, now_ns)
        if not ms:
            return 0
        total, _ = self._record(now_ns)
        if total <= used and used > self.most_at_once:
            return 0
        self.unrecorded -= used
        self._record(now_ns)
        return ms

    @property
    def most_at_once(self) -> int:
        """Largest usage at once without a throttle time, if there is no other usage."""
        number, size_ms = self._book.windows
        return int(self.limit * max(1, number - 1) * size_ms / 1000)

    def _record(self, now_ns: int) -> tuple[int, int]:
        """Record the accumulated usage; return the total of all owners, and the time in ms to divide by."""
        book, now_ms = self._book, now_ns // _NS_PER_MS
        used, self.unrecorded = self.unrecorded, 0
        self.due_ns = now_ns + UNRECORDED_NS
        at, words = self._slot(now_ms), book.writer.words
        if used:
            record(words, at, book.windows, used, now_ms)
        first = at + FIRST_SAMPLE
        tables = [words[first : first + book.writer.table.samples_words].tolist()]
        tables += filter(None, (table.read(self._entity) for table in book.others))
        return measure(tables, book.windows, now_ms)


class TokenMeter(Meter):
    """A quota that is a token bucket: metadata changes, which only the controller counts."""

    __slots__ = ()

    def throttle_ms(self, now_ns: int) -> int:
        """Return how long the bucket needs until it is no longer below empty: 0 if it is not."""
        now_ms = now_ns // _NS_PER_MS
        left = tokens(self._book.writer.words, self._slot(now_ms), self._book.windows, self.limit, now_ms)
        return round(min(-left / self.limit * 1000, MOST_THROTTLE_MS)) if left < 0 else 0

    def take(self, count: float, now_ns: int) -> None:
        """Remove tokens, even below zero; a negative count adds tokens."""
        now_ms = now_ns // _NS_PER_MS
        at, words = self._slot(now_ms), self._book.writer.words
        store_tokens(words, at, tokens(words, at, self._book.windows, self.limit, now_ms) - count, now_ms)
