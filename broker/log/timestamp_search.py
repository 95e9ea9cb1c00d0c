"""Finding records by time, for ListOffsets: the first at or after a timestamp, and the one with the largest.

Any handler asks this of any partition's files. Indexes and headers narrow it down to one batch; only that one's records
are looked into.
"""

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from broker.log.segment_files import LOG_SUFFIX, segment_file
from broker.log.segment_scan import scan_headers
from broker.log.segment_walk import WALK_CHUNK_BYTES, SegmentWalk, check_not_replaced
from broker.log.time_index import NO_TIMESTAMP, TimeIndex
from broker.protocol.records import BatchHeader


class TimestampOffset(NamedTuple):
    """A record's timestamp and offset, and the leader epoch that wrote it."""

    timestamp_ms: int
    offset: int
    leader_epoch: int


class SegmentSpan(NamedTuple):
    """A segment, the offset after its last record, and how far its file may be read (None: to its end)."""

    base_offset: int
    end_offset: int
    limit: int | None


@contextmanager
def _open_walk(directory: Path, span: SegmentSpan) -> Iterator[SegmentWalk]:
    path = segment_file(directory, span.base_offset, LOG_SUFFIX)
    fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        status = os.fstat(fd)
        yield SegmentWalk(directory, span.base_offset, fd, status.st_size if span.limit is None else span.limit)
        check_not_replaced(path, status.st_ino)
    finally:
        os.close(fd)


def first_at_or_after(
    directory: Path, spans: list[SegmentSpan], timestamp_ms: int, start_offset: int
) -> TimestampOffset | None:
    """Return the first record from `start_offset` on whose timestamp is `timestamp_ms` or later.

    Raises FileNotFoundError when a segment was removed meanwhile, ApiError when the batch cannot be read.
    """
    for span in spans:
        if span.end_offset <= start_offset:
            continue
        times = TimeIndex(directory, span.base_offset, writable=False)
        try:
            largest_ms, _ = times.last()
            # Closing a segment leaves its largest timestamp in the index; the last segment's index lags behind.
            if span.limit is None and NO_TIMESTAMP < largest_ms < timestamp_ms:
                continue
            from_offset = max(times.lookup(timestamp_ms), start_offset)
        finally:
            times.file.close()
        with _open_walk(directory, span) as walk:
            found = _search_segment(
                walk,
                walk.position_of(from_offset),
                lambda header: header.max_timestamp >= timestamp_ms and header.last_offset >= start_offset,
                lambda timestamp, offset: timestamp >= timestamp_ms and offset >= start_offset,
            )
        if found is not None:
            return found
    return None


def largest(directory: Path, spans: list[SegmentSpan], start_offset: int) -> TimestampOffset | None:
    """Return the first record that has the largest timestamp of the log, or None if no record has one.

    Raises as `first_at_or_after`.
    """
    best: tuple[int, int, SegmentSpan] | None = None
    for span in spans:
        if span.end_offset <= start_offset:
            continue
        timestamp_ms, offset = _largest_of(directory, span)
        if timestamp_ms > NO_TIMESTAMP and (best is None or timestamp_ms > best[0]):
            best = (timestamp_ms, offset, span)
    if best is None:
        return None
    largest_ms, offset, span = best
    with _open_walk(directory, span) as walk:
        return _search_segment(
            walk,
            walk.position_of(offset),
            lambda header: header.max_timestamp == largest_ms,
            lambda timestamp, _: timestamp == largest_ms,
        )


def _largest_of(directory: Path, span: SegmentSpan) -> tuple[int, int]:
    """Return (largest timestamp, an offset in the first batch that has it) of a segment; (-1, ...) if there is none."""
    times = TimeIndex(directory, span.base_offset, writable=False)
    try:
        timestamp_ms, offset = times.last_below(span.end_offset)
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
    may_hold: Callable[[BatchHeader], bool],
    is_wanted: Callable[[int, int], bool],
) -> TimestampOffset | None:
    """Return the first record, (timestamp, offset) wanted, of the batches from `position` on that may hold it."""
    from broker.protocol.record_reader import iterate_records  # noqa: PLC0415  # loads codecs; rarely needed

    for at, header in scan_headers(walk.fd, position, walk.limit, WALK_CHUNK_BYTES):
        if not may_hold(header):
            continue
        for record in iterate_records(os.pread(walk.fd, header.size_bytes, at)):
            if is_wanted(record.timestamp_ms, record.offset):
                return TimestampOffset(record.timestamp_ms, record.offset, header.leader_epoch)
    return None
