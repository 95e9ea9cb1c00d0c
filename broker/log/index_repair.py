"""Index repair: checks that the indexes of a segment match its batches, and rebuilds damaged indexes.

Runs in the owner of a partition, when the broker starts. The check does not read a durable segment in full: it reads
both ends of each index, and the batches after the last entry; the last entry of the time index must have their largest
timestamp. So a truncated, emptied, zeroed or overwritten file is detected with a few small reads. Damage between the
ends is detected by the readers (`segment_walk`, `timestamp_search`).
"""

import logging
from pathlib import Path

from rotunda.broker.log.indexes.index_file import IndexFile
from rotunda.broker.log.indexes.time_index import NO_TIMESTAMP
from rotunda.broker.log.segments.log_segment import LogSegment
from rotunda.broker.log.segments.segment_scan import has_largest, scan_headers
from rotunda.broker.records.record_batch import BATCH_HEADER_BYTES

_log = logging.getLogger(__name__)


def repair_indexes(segment: LogSegment, size_bytes: int, end_offset: int) -> None:
    """Rebuild the indexes of an inactive segment if one of them is damaged. Raises OSError."""
    damaged = damaged_index(segment, size_bytes, end_offset)
    if damaged is None:
        return
    _log.warning("%s is damaged or missing: rebuilding the segment's indexes from its batches", damaged)
    segment.index.file.truncate(0)
    segment.time_index.cut(segment.base_offset)
    segment.resume_at(0)
    for _, header in scan_headers(segment.fileno(), 0, size_bytes):
        segment.note_batch(header.size_bytes, header.last_offset, header.max_timestamp)
    segment.write_index_entries()
    segment.finish_time_index()
    segment.index.file.sync()
    segment.time_index.file.sync()


def damaged_index(segment: LogSegment, size_bytes: int, end_offset: int) -> Path | None:
    """Return the path of a damaged index, or None; ``end_offset`` follows the segment's last record."""
    fd, index, times = segment.fileno(), segment.index, segment.time_index
    last = index.last()
    start = 0 if last is None else last[1]
    if not index.file.is_whole() or not _ascends(index.file):
        return index.file.path
    if last is not None:
        first = next(scan_headers(fd, start, size_bytes, BATCH_HEADER_BYTES), None)
        if first is None or first[1].last_offset != last[0]:
            return index.file.path
    newest_ms = max((header.max_timestamp for _, header in scan_headers(fd, start, size_bytes)), default=NO_TIMESTAMP)
    largest_ms, offset = times.last()
    if not times.file.is_whole() or not _ascends(times.file) or newest_ms > largest_ms:
        return times.file.path
    if not times.file.entries:
        return None
    is_inside = segment.base_offset <= offset < end_offset
    return (
        None if is_inside and has_largest(fd, index.lookup(offset), size_bytes, largest_ms, offset) else times.file.path
    )


def _ascends(file: IndexFile) -> bool:
    """Return whether the last entry is larger than the first, or is the first."""
    return file.entries < 2 or file.read(0) < file.read(file.entries - 1)
