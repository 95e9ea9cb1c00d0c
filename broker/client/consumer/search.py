"""Searches the records of one topic within limits: the newest, from an offset or a time on, or those with a key.

Reads like a consumer without a group. A search ends after a time and a number of bytes, whatever the topic's size; its
result has the offsets where another one continues, backwards or forwards.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from heapq import merge
from itertools import chain, islice
from typing import TYPE_CHECKING, Final

from rotunda.broker.client.admin.offsets import Bounds, at_time, bounds
from rotunda.broker.client.consumer.fetcher import FetchBounds, Fetched, Fetcher
from rotunda.broker.client.consumer.reader import FROM_END, OFFSET, TIME, Span, Start, matching
from rotunda.broker.client.topic_partition import TopicPartition
from rotunda.broker.errors import RotundaError

if TYPE_CHECKING:
    from rotunda.broker.client.network.blocking_client import BlockingClient
    from rotunda.broker.clock import Clock

#: Limits of one search: bytes of keys, values and headers, and time.
MOST_BYTES: Final = 64 << 20
MOST_NS: Final = 3_000_000_000

_WITHIN: Final = FetchBounds(
    response_bytes=4 << 20, uncompressed_bytes=MOST_BYTES, patience_ns=1_000_000_000, skips_unreadable=True
)
_MAX_WAIT_MS: Final = 100
#: A backward search begins with one offset per partition, and each next window is larger by this factor.
_GROWTH: Final = 8
#: The bytes for single records, if a window has more than MOST_BYTES.
_SINGLE_BYTES: Final = 4 << 20
_MOST_NOTES: Final = 20
_OVER: Final = f"stopped after {MOST_BYTES >> 20} MiB or {MOST_NS // 1_000_000_000} s: not all was searched"


@dataclass(frozen=True, slots=True, kw_only=True)
class Search:
    """A selection of `count` records: backwards from the end, or forwards from an offset or a time.

    `at` has the offsets of partitions where an earlier search ended, and replaces the offsets of `start`.
    """

    topic: str
    partition: int | None = None
    start: Start = FROM_END
    at: Mapping[int, int] = field(default_factory=dict)
    is_forward: bool = False
    key: bytes | None = None
    count: int = 50
    read_committed: bool = True


@dataclass(slots=True)
class Examined:
    """A partition: its offsets, and the range from `low` to below `high` that was examined. `found` is in order."""

    held: Bounds
    low: int
    high: int
    found: list[Fetched] = field(default_factory=list)


@dataclass(frozen=True, slots=True, kw_only=True)
class SearchResult:
    """The records in the order of the search, and by partition the offsets where to continue in both directions."""

    records: list[Fetched]
    partitions: dict[int, Examined]
    older: dict[int, int]
    newer: dict[int, int]
    notes: list[str]


def search(client: BlockingClient, wanted: Search, clock: Clock) -> SearchResult:
    """Run a search. Raises ApiError, ConnectionFailed and RotundaError."""
    return _Run(client, wanted, clock).result()


class _Run:
    """One search, and the rest of its limits."""

    def __init__(self, client: BlockingClient, wanted: Search, clock: Clock) -> None:
        self._client = client
        self._wanted = wanted
        self._clock = clock
        self._until_ns = clock.monotonic_ns() + MOST_NS
        self._left_bytes = MOST_BYTES
        self._notes: list[str] = []
        self._is_over = False

    def result(self) -> SearchResult:
        """Search, and return the result."""
        wanted = self._wanted
        places = self._places()
        if wanted.is_forward:
            self._search_forward(places)
        else:
            self._search_backward(places)
        sign = 1 if wanted.is_forward else -1
        lists = [each.found[::sign] for each in places.values()]
        # A merge keeps the order of offsets in a partition, so that the rest of each is one range.
        merged = merge(*lists, key=lambda each: each.record.timestamp_ms, reverse=not wanted.is_forward)
        records = list(islice(merged, wanted.count))
        shown: dict[TopicPartition, int] = {}
        for each in records:
            shown[each.partition] = shown.get(each.partition, 0) + 1
        older, newer = {}, {}
        for partition, place in places.items():
            rest = place.found[::sign][shown.get(partition, 0) :]
            older[partition.partition] = rest[0].record.offset + 1 if rest and sign < 0 else place.low
            newer[partition.partition] = rest[0].record.offset if rest and sign > 0 else place.high
        if self._is_over:
            self._notes.append(_OVER)
        examined = {each.partition: place for each, place in places.items()}
        return SearchResult(records=records, partitions=examined, older=older, newer=newer, notes=self._notes)

    def _places(self) -> dict[TopicPartition, Examined]:
        """Return the selected partitions with their first offsets."""
        wanted = self._wanted
        matching(self._client, [wanted.topic])
        partitions = sorted(self._client.leaders)
        if wanted.partition is not None:
            chosen = TopicPartition(wanted.topic, wanted.partition)
            if chosen not in self._client.leaders:
                raise RotundaError(
                    f"topic {wanted.topic} has no partition {chosen.partition}: it has 0 to {len(partitions) - 1}"
                )
            partitions = [chosen]
        held = bounds(self._client, partitions)
        times = at_time(self._client, held, wanted.start.number) if wanted.start.kind == TIME and not wanted.at else {}
        places = {}
        for each, has in held.items():
            at = self._first(each, has, times.get(each))
            places[each] = Examined(has, at, at)
        return places

    def _first(self, partition: TopicPartition, held: Bounds, at_time_: int | None) -> int:
        wanted, end = self._wanted, self._end(held)
        if wanted.at:
            at = wanted.at.get(partition.partition, held.start if wanted.is_forward else end)
        elif wanted.start.kind == OFFSET:
            at, number = wanted.start.number, partition.partition
            if at < held.start:
                self._notes.append(f"partition {number} starts at {held.start}: older offsets were deleted")
            elif at >= held.end:
                self._notes.append(f"partition {number} has no offset {at} yet: the next one is {held.end}")
        else:
            at = end if at_time_ is None else at_time_
        return min(max(at, held.start), max(end, held.start))

    def _end(self, held: Bounds) -> int:
        return held.stable if self._wanted.read_committed else held.end

    def _search_forward(self, places: dict[TopicPartition, Examined]) -> None:
        spans = {each: Span(place.low, self._end(place.held)) for each, place in places.items()}
        fetcher = self._read(spans, places, self._wanted.count)
        for each, place in places.items():
            place.high = fetcher.finished.get(each, fetcher.positions.get(each, place.high))
            if len(place.found) == self._wanted.count:
                place.high = place.found[-1].record.offset + 1

    def _search_backward(self, places: dict[TopicPartition, Examined]) -> None:
        size, growth = 1, _GROWTH
        while not self._is_over:
            spans = {
                each: Span(max(place.held.start, place.low - size), place.low)
                for each, place in places.items()
                if place.low > place.held.start and len(place.found) < self._wanted.count
            }
            if not spans:
                return
            windows = {each: Examined(places[each].held, *span) for each, span in spans.items()}
            fetcher = self._read(spans, windows, None)
            for each, window in windows.items():
                # The oldest records of a window are read first: an unfinished one would leave a gap.
                if fetcher.positions.get(each, window.high) >= window.high:
                    places[each].found[:0] = window.found
                    places[each].low = window.low
            size *= growth
            if self._left_bytes <= 0 and growth > 1 and self._wanted.key is None:
                # The window had long records: read one by one up to them.
                size = growth = 1
                self._left_bytes, self._is_over = _SINGLE_BYTES, False

    def _read(
        self, spans: Mapping[TopicPartition, Span], into: Mapping[TopicPartition, Examined], most: int | None
    ) -> Fetcher:
        """Add the matching records of the offsets, at most `most` per partition; return the fetcher that read them."""
        committed = self._wanted.read_committed
        fetcher = Fetcher(self._client, self._clock, self._note, read_committed=committed, within=_WITHIN)
        for each, span in spans.items():
            fetcher.begin(each, span.start, span.end)
        while fetcher.positions and not self._is_over:
            self._fetch(fetcher, into, most)
        return fetcher

    def _fetch(self, fetcher: Fetcher, into: Mapping[TopicPartition, Examined], most: int | None) -> None:
        key = self._wanted.key
        for each in fetcher.fetch(_MAX_WAIT_MS):
            record, found = each.record, into[each.partition].found
            self._left_bytes -= sum(len(part or b"") for part in (record.key, record.value, *chain(*record.headers)))
            if (key is None or record.key == key) and (most is None or len(found) < most):
                found.append(each)
            if self._is_too_long():
                return
        # A fetch of aborted transactions or of control batches has no records.
        if self._is_too_long():
            return
        for partition in [each for each in fetcher.positions if len(into[each].found) == most]:
            del fetcher.positions[partition]

    def _is_too_long(self) -> bool:
        """Return whether a limit is reached; then the search ends."""
        self._is_over = self._left_bytes <= 0 or self._clock.monotonic_ns() > self._until_ns
        return self._is_over

    def _note(self, text: str) -> None:
        # A batch may be in two windows.
        if text not in self._notes and len(self._notes) < _MOST_NOTES:
            self._notes.append(text)
