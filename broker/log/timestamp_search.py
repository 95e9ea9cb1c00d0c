"""Finds records by time, for ListOffsets: the first at or after a timestamp, and the one with the largest.

Runs in any handler, on any partition's files. Indexes and headers narrow the search to one batch; only the records of
that batch are read. Headers written by earlier versions, and by this one with ``log.validate.records=false``, are
unverified claims of the producer: if a header promises a timestamp that no record has, the search continues with the
next batch, and a batch without a largest timestamp is read. So one search has a limit, a `ReadAllowance`; where that is
used up, the result is the offset up to which nothing was found, from which a reader misses nothing either.

A search runs in steps, because a batch may hold very many records: it yields after every `SLICE` records or headers,
and returns the result. Other processes may remove segments meanwhile.
"""

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final, NamedTuple

from rotunda.broker.log.indexes.time_index import NO_TIMESTAMP, TimeIndex
from rotunda.broker.log.segments.segment_files import LOG_SUFFIX, segment_file
from rotunda.broker.log.segments.segment_scan import has_largest, scan_headers
from rotunda.broker.log.segments.segment_walk import WALK_CHUNK_BYTES, SegmentWalk, check_not_replaced
from rotunda.broker.records.record_batch import BatchHeader
from rotunda.broker.records.record_reader import ReadAllowance, record_times
from rotunda.broker.steps import Steps

#: Limits of one search: records and batch headers, and bytes of uncompressed records.
MOST_RECORDS: Final = 500_000
MOST_BYTES: Final = 32 * 1024 * 1024
#: Records or headers between two yields.
SLICE: Final = 1000

_NO_LEADER_EPOCH: Final = -1


class TimestampOffset(NamedTuple):
    """A record's timestamp and offset, and the leader epoch that wrote it."""

    timestamp_ms: int
    offset: int
    leader_epoch: int


class SegmentSpan(NamedTuple):
    """A segment, the offset after its last record, and the readable size of its file (None: all of it)."""

    base_offset: int
    end_offset: int
    limit: int | None


@contextmanager
def _open_walk(directory: Path, span: SegmentSpan) -> Iterator[SegmentWalk]:
    path = segment_file(directory, span.base_offset, LOG_SUFFIX)
    fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW)
    try:
        status = os.fstat(fd)
        yield SegmentWalk(directory, span.base_offset, fd, status.st_size if span.limit is None else span.limit)
        check_not_replaced(path, status.st_ino)
    finally:
        os.close(fd)


def first_at_or_after(
    directory: Path, spans: list[SegmentSpan], timestamp_ms: int, start_offset: int
) -> Steps[TimestampOffset | None]:
    """Return the first record from `start_offset` on whose timestamp is `timestamp_ms` or later.

    The result may lie before that record, with the timestamp of its batch header, only if too many headers promise
    timestamps that no record has. Raises FileNotFoundError when a segment was removed meanwhile, ApiError when the
    batch cannot be read.
    """
    allowance = ReadAllowance(MOST_RECORDS, MOST_BYTES)
    for span in spans:
        if span.end_offset <= start_offset:
            continue
        times = TimeIndex(directory, span.base_offset, writable=False)
        try:
            largest_ms, _ = times.last()
            entry = times.floor(timestamp_ms)
            # Closing a segment writes its largest timestamp to the index; the last segment's index lags.
            if span.limit is None and NO_TIMESTAMP < largest_ms < timestamp_ms:
                continue
        finally:
            times.file.close()
        with _open_walk(directory, span) as walk:
            found = yield from _search_segment(
                walk,
                _first_position(walk, entry, start_offset),
                allowance,
                lambda header: header.last_offset >= start_offset and _may_reach(header, timestamp_ms),
                lambda timestamp, offset: timestamp >= timestamp_ms and offset >= start_offset,
            )
        if found is not None:
            return found._replace(offset=max(found.offset, start_offset))
    return None


def _may_reach(header: BatchHeader, timestamp_ms: int) -> bool:
    """Return whether a batch may have a record of this time or later: also one with times but no largest time."""
    is_untold = header.max_timestamp == NO_TIMESTAMP and header.base_timestamp != NO_TIMESTAMP
    return header.max_timestamp >= timestamp_ms or is_untold


def _first_position(walk: SegmentWalk, entry: tuple[int, int] | None, start_offset: int) -> int:
    """Return the start position: that of the time index's entry (timestamp, offset), unless it is damaged."""
    if entry is not None and entry[1] > start_offset:
        position = walk.position_of(entry[1])
        if has_largest(walk.fd, position, walk.limit, *entry):
            return position
    return walk.position_of(start_offset)


def largest(directory: Path, spans: list[SegmentSpan], start_offset: int) -> Steps[TimestampOffset | None]:
    """Return the first record that has the largest timestamp of the log, or None if there is no record.

    If no record has a timestamp, the first one, as in Kafka. If no record of its segment has the timestamp in the index
    or header, the offset in the index or header. Raises as `first_at_or_after`.
    """
    best: tuple[int, int, SegmentSpan] | None = None
    for span in spans:
        if span.end_offset <= start_offset:
            continue
        timestamp_ms, offset = _largest_of(directory, span)
        if best is None or timestamp_ms > best[0]:
            best = (timestamp_ms, offset, span)
        yield
    if best is None:
        return None
    largest_ms, offset, span = best
    with _open_walk(directory, span) as walk:
        found = yield from _search_segment(
            walk,
            walk.position_of(offset),
            ReadAllowance(MOST_RECORDS, MOST_BYTES),
            lambda header: header.max_timestamp == largest_ms,
            lambda timestamp, _: timestamp == largest_ms,
        )
    if largest_ms == NO_TIMESTAMP:
        return found and found._replace(offset=max(found.offset, start_offset))
    return found or TimestampOffset(largest_ms, offset, _NO_LEADER_EPOCH)


def _largest_of(directory: Path, span: SegmentSpan) -> tuple[int, int]:
    """Return (largest timestamp, an offset in the first batch with it) of a segment; (-1, ...) if there is none."""
    times = TimeIndex(directory, span.base_offset, writable=False)
    try:
        # The index of the last segment may have entries beyond the published end.
        timestamp_ms, offset = times.last() if span.limit is None else times.last_below(span.end_offset)
    finally:
        times.file.close()
    if span.limit is None and timestamp_ms > NO_TIMESTAMP:
        return timestamp_ms, offset
    with _open_walk(directory, span) as walk:
        for _, header in scan_headers(walk.fd, walk.position_of(offset), walk.limit, WALK_CHUNK_BYTES):
            if header.max_timestamp > timestamp_ms:
                timestamp_ms, offset = header.max_timestamp, header.last_offset
    return timestamp_ms, offset


def _search_segment(
    walk: SegmentWalk,
    position: int,
    allowance: ReadAllowance,
    may_hold: Callable[[BatchHeader], bool],
    is_wanted: Callable[[int, int], bool],
) -> Steps[TimestampOffset | None]:
    """Return the first record for which `is_wanted(timestamp, offset)` holds, of the batches that may hold it.

    If the allowance is used up, return the first record that was not read.
    """
    for at, header in scan_headers(walk.fd, position, walk.limit, WALK_CHUNK_BYTES):
        allowance.left_records -= 1
        unseen_offset = header.base_offset
        if header.record_count and may_hold(header):
            for timestamp_ms, offset in record_times(os.pread(walk.fd, header.size_bytes, at), header, allowance):
                if is_wanted(timestamp_ms, offset):
                    return TimestampOffset(timestamp_ms, offset, header.leader_epoch)
                unseen_offset = offset + 1
                if not allowance.left_records % SLICE:
                    yield
        if not allowance.left_records % SLICE:
            yield
        if allowance.is_used_up:
            return TimestampOffset(header.max_timestamp, min(unseen_offset, header.last_offset), header.leader_epoch)
    return None
