"""The lag of a group, in records and in seconds, at one instant; and the reasons for unknown values.

Committed offsets are read first and partition ends afterwards, so that reading cannot cause a negative lag: an apparent
one is a fact about the group, and is shown. Unknown is None, never 0.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from rotunda.broker.client.admin import offsets
from rotunda.broker.client.consumer.fetcher import AbortedTransactions, FetchLimits, fetch, whole_batches
from rotunda.broker.client.topic_partition import TopicPartition
from rotunda.broker.errors import ApiError
from rotunda.broker.protocol.error_codes import name_of
from rotunda.broker.records.record_reader import iterate_records

if TYPE_CHECKING:
    from rotunda.broker.client.admin.groups import Committed
    from rotunda.broker.client.admin.offsets import Bounds
    from rotunda.broker.client.network.blocking_client import BlockingClient
    from rotunda.broker.client.topic_partition import TopicPartition
    from rotunda.broker.clock import Clock

_LIMITS: Final = FetchLimits(0, 0, 1 << 23, 1 << 17)
_MOST_ANSWERS: Final = 1000
NO_PARTITION: Final = "the partition no longer exists"
BEYOND_END: Final = (
    "the committed offset is beyond the log end: the topic was recreated or truncated, its consumer will start over"
)
BEYOND_STABLE: Final = "the committed offset is beyond the last stable offset: nothing to read until it moves on"
EXPIRED: Final = "the records at {} to {} are deleted unread; lag counts from the log start"
NO_RECORDS: Final = "the remaining offsets have no records to read (transaction markers, aborted or compacted records)"
FUTURE: Final = "the oldest unread record has a time in the future"
NO_TIME: Final = "the oldest unread record has no time"
NOT_READ: Final = "the oldest unread record could not be read ({})"


class Span(NamedTuple):
    """An offset range to search: from `start` to below `end`."""

    start: int
    end: int


class Unread(NamedTuple):
    """The timestamp of the oldest unread record; or None, with the problem, or without one if there is no record."""

    timestamp_ms: int | None
    problem: str | None = None


NOTHING: Final = Unread(None)
"""The span has no records: only markers, aborted records, or compacted offsets."""
_GIVEN_UP: Final = Unread(None, f"not among the first {_MOST_ANSWERS} responses")


def oldest_unread(
    client: BlockingClient, spans: Mapping[TopicPartition, Span], *, read_committed: bool
) -> dict[TopicPartition, Unread]:
    """Return the first record of each span. Raises ConnectionFailed."""
    found: dict[TopicPartition, Unread] = {}
    left = {each: span for each, span in spans.items() if span.start < span.end}
    for _ in range(_MOST_ANSWERS):
        if not left:
            break
        # A request's first partition always gets a whole batch, however large it is. So each response completes or
        # advances that partition, and most responses complete most partitions.
        responses = _fetch(client, left, read_committed=read_committed)
        first = min(left)
        for partition, response in responses.items():
            result = _search(response, left[partition], read_committed=read_committed)
            if isinstance(result, Unread):
                found[partition] = result
                del left[partition]
            elif result > left[partition].start:
                left[partition] = Span(result, left[partition].end)
            elif partition == first:
                found[partition] = NOTHING
                del left[partition]
    return {each: found.get(each, _GIVEN_UP if each in left else NOTHING) for each in spans}


def _fetch(
    client: BlockingClient, spans: Mapping[TopicPartition, Span], *, read_committed: bool
) -> dict[TopicPartition, Any]:
    positions = {each: spans[each].start for each in sorted(spans)}
    response = fetch(client, positions, _LIMITS, read_committed=read_committed)
    return {
        TopicPartition(str(topic.topic), int(each.partition_index)): each
        for topic in response.responses
        for each in topic.partitions
    }


def _search(response: Any, span: Span, *, read_committed: bool) -> Unread | int:
    """Return the result of one partition's response, or the next offset to fetch."""
    if int(response.error_code):
        return Unread(None, name_of(int(response.error_code)))
    aborted = AbortedTransactions(response.aborted_transactions or () if read_committed else ())
    offset = span.start
    for header, batch in whole_batches(memoryview(response.records or b"")):
        if header.base_offset >= span.end:
            return NOTHING
        if header.last_offset < offset:
            continue
        if not aborted.hides(header, batch):
            try:
                for record in iterate_records(batch):
                    if record.offset >= offset:
                        return Unread(record.timestamp_ms) if record.offset < span.end else NOTHING
            except ApiError as error:
                return Unread(None, name_of(error.code))
        offset = header.last_offset + 1
    return NOTHING if offset >= span.end else offset


class PartitionLag(NamedTuple):
    """One partition of a group: committed offset, bounds and lag. None is unknown."""

    partition: TopicPartition
    committed: Committed | None
    bounds: Bounds | None
    lag_records: int | None
    lag_seconds: float | None
    notes: tuple[str, ...]


class _Distance(NamedTuple):
    records: int | None
    span: Span | None = None
    note: str | None = None


def measure(
    client: BlockingClient,
    clock: Clock,
    committed: Mapping[TopicPartition, Committed],
    others: Collection[TopicPartition] = (),
    *,
    read_committed: bool,
) -> list[PartitionLag]:
    """Return the lag of committed offsets, and rows of unknown lag for `others`, in order. Raises ApiError."""
    partitions = sorted({*committed, *others})
    bounds = offsets.bounds(client, partitions)
    now_ms = clock.wall_ms()
    distances = {
        each: _distance(committed.get(each), bounds.get(each), read_committed=read_committed) for each in partitions
    }
    spans = {each: distance.span for each, distance in distances.items() if distance.span is not None}
    unread = oldest_unread(client, spans, read_committed=read_committed)
    rows = []
    for each in partitions:
        distance = distances[each]
        seconds, note = (0.0, None) if distance.records == 0 else _age(unread.get(each), now_ms)
        notes = tuple(text for text in (distance.note, note) if text is not None)
        rows.append(PartitionLag(each, committed.get(each), bounds.get(each), distance.records, seconds, notes))
    return rows


def _distance(committed: Committed | None, bounds: Bounds | None, *, read_committed: bool) -> _Distance:
    """Return the records between a committed offset and the last offset visible to its consumer."""
    if bounds is None:
        return _Distance(None, note=NO_PARTITION)
    if committed is None:
        return _Distance(None)
    if committed.offset > bounds.end:
        return _Distance(None, note=BEYOND_END)
    end = bounds.stable if read_committed else bounds.end
    if committed.offset > end:
        return _Distance(0, note=BEYOND_STABLE)
    start = max(committed.offset, bounds.start)
    note = EXPIRED.format(committed.offset, start - 1) if start > committed.offset else None
    if start >= end:
        return _Distance(0, note=note)
    return _Distance(end - start, Span(start, end), note)


def _age(unread: Unread | None, now_ms: int) -> tuple[float | None, str | None]:
    if unread is None:
        return None, None
    if unread.problem is not None:
        return None, NOT_READ.format(unread.problem)
    if unread.timestamp_ms is None:
        return 0.0, NO_RECORDS
    if unread.timestamp_ms < 0:
        return None, NO_TIME
    if unread.timestamp_ms > now_ms:
        return 0.0, FUTURE
    return (now_ms - unread.timestamp_ms) / 1000, None
