"""A partition's segments in the cleaner: names and sizes of files, and the state that the owner has published.

Runs in the cleaner process, without requests to owners. Any file may be removed a moment later: a missing file raises
FileNotFoundError, and the partition is retried in a later round.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from rotunda.broker.cleaner.batch_filter import LastRecord
from rotunda.broker.errors import ApiError
from rotunda.broker.log.indexes.offset_index import OffsetIndex
from rotunda.broker.log.indexes.time_index import NO_TIMESTAMP, TimeIndex
from rotunda.broker.log.indexes.transaction_index import AbortedTransaction, TransactionIndex
from rotunda.broker.log.producers.producer_snapshot import SnapshotCorruptError, decode
from rotunda.broker.log.segments.segment_files import (
    INDEX_SUFFIX,
    LOG_SUFFIX,
    SNAPSHOT_SUFFIX,
    TIME_INDEX_SUFFIX,
    TXN_INDEX_SUFFIX,
    offsets_of,
    read_file,
    segment_file,
)
from rotunda.broker.log.segments.segment_scan import scan_headers
from rotunda.broker.protocol.error_codes import ErrorCode
from rotunda.broker.records.record_batch import BatchHeader, batch_headers

#: Bytes of a segment that are read at a time.
READ_BYTES = 1024 * 1024


class Segment(NamedTuple):
    """One segment: size and modification time of its log file, and the base offset of the next segment.

    For the active segment, size and end are the published ones.
    """

    base_offset: int
    end_offset: int
    size_bytes: int
    modified_ns: int


class Published(NamedTuple):
    """The published state of a partition."""

    start_offset: int
    end_offset: int
    stable_offset: int
    segment_base: int
    position: int


class SegmentedLog(NamedTuple):
    """One partition, with its `active` segment; the others, oldest first, only change by a swap."""

    directory: Path
    published: Published
    rolled: tuple[Segment, ...]
    active: Segment

    def reaches(self, segment: Segment, time_ms: int) -> bool:
        """Return whether a segment has a record of ``time_ms`` or later.

        If no record has a timestamp, the modification time of the file is used.
        """
        times = TimeIndex(self.directory, segment.base_offset, writable=False)
        try:
            largest_ms, offset = times.last_below(segment.end_offset)
        finally:
            times.file.close()
        modified_ms = segment.modified_ns // 1_000_000
        is_young = modified_ms >= time_ms and segment is not self.active
        if largest_ms >= time_ms or (largest_ms == NO_TIMESTAMP and is_young):
            return True
        # The active segment's index lags, and any may be damaged: deletion is final, so the batches are read.
        largest_ms = self._largest_ms(segment, offset, largest_ms)
        return (largest_ms if largest_ms > NO_TIMESTAMP else modified_ms) >= time_ms

    def _largest_ms(self, segment: Segment, offset: int, indexed_ms: int) -> int:
        """Return the largest timestamp of a segment, which is `indexed_ms`, at `offset`, according to the index.

        If the batch at that offset contradicts the index, or is missing, all batches are read.
        """
        headers = (header for _, header in self._headers(segment, offset) if header.last_offset >= offset)
        first = next(headers, None)
        if first is None or first.max_timestamp != indexed_ms:
            headers = (header for _, header in self._headers(segment, -1))
            indexed_ms = NO_TIMESTAMP
        return max([indexed_ms, *(each.max_timestamp for each in headers if each.record_count)])

    def first_timestamp_ms(self, segment: Segment) -> int:
        """Return the timestamp of a segment's first batch, or -1."""
        first = next(self._headers(segment, -1), None)
        return first[1].max_timestamp if first else NO_TIMESTAMP

    def largest_index_bytes(self, segment: Segment) -> int:
        """Return the size of the larger one of a segment's two indexes."""
        paths = [
            segment_file(self.directory, segment.base_offset, suffix) for suffix in (INDEX_SUFFIX, TIME_INDEX_SUFFIX)
        ]
        return max(path.stat().st_size if path.exists() else 0 for path in paths)

    def batches(self, segment: Segment) -> Iterator[tuple[memoryview, BatchHeader]]:
        """Yield the batches of a segment. Batches read together share memory: keep no view of them.

        Raises ApiError for other bytes between the batches: the rest would be lost.
        """
        fd = self._open(segment)
        try:
            position = 0
            wanted = READ_BYTES
            while position < segment.size_bytes:
                chunk = memoryview(os.pread(fd, min(wanted, segment.size_bytes - position), position))
                end = 0
                for at, header in batch_headers(chunk):
                    end = at + header.size_bytes
                    yield chunk[at:end], header
                if not end:
                    if wanted >= segment.size_bytes - position:
                        where = f"segment {segment.base_offset}, byte {position}"
                        raise ApiError(ErrorCode.CORRUPT_MESSAGE, f"{where}: no batch")
                    # A batch larger than `wanted`.
                    wanted *= 4
                position += end
                wanted = READ_BYTES if end else wanted
        finally:
            os.close(fd)

    def aborted_transactions(self) -> list[AbortedTransaction]:
        """Return every aborted transaction in the log's transaction indexes."""
        found = []
        for base_offset in offsets_of(self.directory, TXN_INDEX_SUFFIX):
            index = TransactionIndex(self.directory, base_offset)
            try:
                found += index.entries()
            finally:
                index.file.close()
        return found

    def last_records(self, now_ms: int, expiration_ms: int) -> dict[int, LastRecord]:
        """Return the last write of every producer that wrote within `expiration_ms`, by producer id."""
        from_offset, producers = self._snapshot()
        for segment in (*self.rolled, self.active):
            if segment.end_offset <= from_offset:
                continue
            for _, header in self._headers(segment, from_offset):
                if header.producer_id < 0 or header.base_offset < from_offset:
                    continue
                last = producers.get(header.producer_id)
                offset = last[0].last_offset if last and last[0].epoch == header.producer_epoch else -1
                record = LastRecord(header.producer_epoch, offset if header.is_control else header.last_offset)
                producers[header.producer_id] = (record, header.max_timestamp)
        return {
            producer_id: record
            for producer_id, (record, timestamp_ms) in producers.items()
            if now_ms - timestamp_ms < expiration_ms
        }

    def _snapshot(self) -> tuple[int, dict[int, tuple[LastRecord, int]]]:
        """Return the newest readable snapshot of producers: its offset, and (last record, time) by id."""
        for offset in reversed(offsets_of(self.directory, SNAPSHOT_SUFFIX)):
            if offset > self.published.end_offset:
                continue
            try:
                entries = decode(read_file(segment_file(self.directory, offset, SNAPSHOT_SUFFIX)))
            except (SnapshotCorruptError, FileNotFoundError):
                continue
            return offset, {
                entry.producer_id: (
                    LastRecord(entry.epoch, entry.last_offset),
                    entry.last_timestamp_ms,
                )
                for entry in entries
            }
        return -1, {}

    def _headers(self, segment: Segment, from_offset: int) -> Iterator[tuple[int, BatchHeader]]:
        """Yield (position, header) from an index entry at or before `from_offset` on."""
        fd = self._open(segment)
        index = OffsetIndex(self.directory, segment.base_offset, writable=False)
        try:
            yield from scan_headers(fd, index.lookup(from_offset), segment.size_bytes)
        finally:
            index.file.close()
            os.close(fd)

    def _open(self, segment: Segment) -> int:
        path = segment_file(self.directory, segment.base_offset, LOG_SUFFIX)
        return os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW)


def look_at(directory: Path, published: Published) -> SegmentedLog:
    """Return the current segments of a partition. Raises FileNotFoundError if some are being removed."""
    bases = [base for base in offsets_of(directory, LOG_SUFFIX) if base <= published.segment_base]
    if not bases or bases[-1] != published.segment_base:
        raise FileNotFoundError(f"{directory}: no segment {published.segment_base}")
    segments = []
    for number, base_offset in enumerate(bases):
        status = segment_file(directory, base_offset, LOG_SUFFIX).stat()
        is_last = number == len(bases) - 1
        segments.append(
            Segment(
                base_offset,
                published.end_offset if is_last else bases[number + 1],
                published.position if is_last else status.st_size,
                status.st_mtime_ns,
            )
        )
    return SegmentedLog(directory, published, tuple(segments[:-1]), segments[-1])
