"""Finds whole batches in one segment file that its owner may be appending to: by index, then header by header.

Used by readers. `limit` is the position up to which the reader may read; anything beyond it is not published.
"""

import logging
import os
from pathlib import Path
from typing import NamedTuple

from rotunda.broker.log.indexes.offset_index import OffsetIndex
from rotunda.broker.log.segments.segment_files import LOG_SUFFIX, segment_file
from rotunda.broker.log.segments.segment_scan import scan_headers
from rotunda.broker.records.record_batch import BATCH_HEADER_BYTES

#: Damaged indexes that have been logged.
_reported: set[Path] = set()

_log = logging.getLogger(__name__)

#: Enough to scan one index interval of small batches at a time.
WALK_CHUNK_BYTES = 8 * 1024


def check_not_replaced(path: bytes | Path, inode: int) -> None:
    """Raise FileNotFoundError if a segment's name has another inode than the file that was scanned.

    Its offset index may have been that of the other file. Called before the file is closed: its inode cannot be reused
    before.
    """
    if os.stat(path).st_ino != inode:  # noqa: PTH116 - the path may be bytes and this is per request
        raise FileNotFoundError(f"{os.fsdecode(path)}: replaced meanwhile")


class BatchPlace(NamedTuple):
    """Position and size of a batch in its file."""

    position: int
    size_bytes: int
    last_offset: int


class SegmentWalk:
    """One segment, its log file opened as `fd` by the caller, up to `limit`."""

    __slots__ = ("base_offset", "directory", "fd", "limit")

    def __init__(self, directory: Path, base_offset: int, fd: int, limit: int) -> None:
        self.directory = directory
        self.base_offset = base_offset
        self.fd = fd
        self.limit = limit

    def position_of(self, offset: int) -> int:
        """Return a batch start at or before the batch with `offset`; 0 if the index is damaged.

        Raises FileNotFoundError when the index is that of another file, which has replaced this one.
        """
        index = OffsetIndex(self.directory, self.base_offset, writable=False)
        try:
            found = index.floor(offset)
        finally:
            index.file.close()
        if found is None:
            return 0
        last_offset, position = found
        first = next(scan_headers(self.fd, position, self.limit, BATCH_HEADER_BYTES), None)
        if first is not None and self.base_offset <= first[1].base_offset <= first[1].last_offset <= last_offset:
            return position
        check_not_replaced(segment_file(self.directory, self.base_offset, LOG_SUFFIX), os.fstat(self.fd).st_ino)
        if index.file.path not in _reported:
            _reported.add(index.file.path)
            _log.warning(
                "%s is damaged: no batch up to offset %d at byte %d. Look-ups read its segment from the beginning; "
                "to rebuild the file, stop the broker and delete it",
                index.file.path,
                last_offset,
                position,
            )
        return 0

    def batch_with(self, offset: int, start: int) -> BatchPlace | None:
        """Return the first batch at or after `start` (-1: use the index) that does not end before `offset`."""
        if start < 0:
            # The first read covers the beginning of a segment, so only what lies beyond needs the index.
            is_near = offset <= self.base_offset or self.limit <= WALK_CHUNK_BYTES
            start = 0 if is_near else self.position_of(offset)
        for position, header in scan_headers(self.fd, start, self.limit, WALK_CHUNK_BYTES):
            if header.last_offset >= offset:
                return BatchPlace(position, header.size_bytes, header.last_offset)
        return None

    def whole_batches(self, first: BatchPlace, max_bytes: int, follows: int) -> tuple[int, int]:
        """Return (bytes, next offset) of the whole batches from `first` on that fit into `max_bytes`, one at least.

        `follows` is the offset after the last batch if the caller knows it, else -1.
        """
        position, size, last_offset = first
        if self.limit - position <= max_bytes and follows >= 0:
            return self.limit - position, follows
        if size >= max_bytes:
            return size, last_offset + 1
        target = position + max_bytes
        end, next_offset = position + size, last_offset + 1
        for at, header in scan_headers(self.fd, self._indexed_before(target, end), self.limit, WALK_CHUNK_BYTES):
            end = at
            next_offset = header.base_offset
            if at + header.size_bytes > target:
                break
            end = at + header.size_bytes
            next_offset = header.last_offset + 1
        return end - position, next_offset

    def _indexed_before(self, position: int, least: int) -> int:
        """Return the last batch start in the index at or before `position`, or `least` if that is larger."""
        index = OffsetIndex(self.directory, self.base_offset, writable=False)
        try:
            return max(index.lookup_position(position), least)
        finally:
            index.file.close()
