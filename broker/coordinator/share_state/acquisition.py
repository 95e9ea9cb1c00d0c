"""Finds the records of one share partition in its log, and acquires them for a member.

Runs in the handler that owns the group's state. Records stay in their files: only the headers of batches are read, up
to the limit of the fetch.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Final, NamedTuple

from rotunda.broker.ipc.segment_file_cache import OpenFile, SegmentFiles
from rotunda.broker.log.log_reader import FileSlice
from rotunda.broker.log.segments.segment_scan import scan_headers
from rotunda.broker.partitions.share.share_window import Acquired, AcquireTerms, DeliveryTerms, LogBatch, ShareWindow
from rotunda.broker.protocol.error_codes import ErrorCode
from rotunda.broker.records.record_batch import BatchHeader
from rotunda.shm.tables.partitions import STATE_OPEN

if TYPE_CHECKING:
    from rotunda.broker.partitions.partition_manager import PartitionManager

#: Enough for many headers of small batches, and little to read for one header of a large batch.
_CHUNK_BYTES: Final = 4096

#: Aborted transactions: (producer id, first offset).
_Aborted = tuple[tuple[int, int], ...]


class ShareLog(NamedTuple):
    """The log of a partition: its row in the partition table, and its name."""

    row: int
    topic: str
    partition: int


class SharePartition(NamedTuple):
    """A share partition as a fetch uses it."""

    log: ShareLog
    window: ShareWindow


class Readable(NamedTuple):
    """Records that a window may acquire."""

    window: ShareWindow
    found: FileSlice
    aborted: _Aborted


class Found(NamedTuple):
    """Acquired records, with the file range of their batches."""

    records: FileSlice
    acquired: Sequence[Acquired]


class ShareReader:
    """Reads the logs of share partitions."""

    def __init__(self, partitions: PartitionManager) -> None:
        self._partitions, self._table = partitions, partitions.table
        self._files = SegmentFiles()

    def forget_unused(self) -> None:
        """Close deleted segment files."""
        self._files.forget_removed()

    def readable_end(self, row: int, *, committed: bool) -> int:
        """Return the offset up to which a group may read."""
        stable = self._table.read_stable(row)
        end = self._table.read_end(row)
        return min(stable, end) if committed else end

    def locate(self, part: SharePartition, offset: int, max_bytes: int, *, committed: bool) -> Readable | int | None:
        """Return the records from an offset on; None if there are none yet, or an error code. Raises OSError."""
        row = part.log.row
        if self._table.state(row) != STATE_OPEN:
            return int(ErrorCode.NOT_LEADER_OR_FOLLOWER)
        reader = self._partitions.reader(*part.log)
        stable, end, _ = self._table.read_log(row)
        aborted: _Aborted = ()
        if committed:
            if offset >= min(stable, end[0]):
                return None
            found, aborted = reader.locate_committed(offset, min(stable, end[0]), end, max_bytes)
        else:
            found = reader.locate(offset, end, max_bytes)
        if found is None:
            # The log has moved meanwhile: the next attempt sees its new start.
            return int(ErrorCode.NOT_LEADER_OR_FOLLOWER)
        return Readable(part.window, found, aborted) if found.length else None

    def acquire(self, readable: Readable, limits: AcquireTerms, terms: DeliveryTerms, now_ns: int) -> Found | None:
        """Acquire records for a member; None if there are none for it. Raises OSError before anything is acquired."""
        found = readable.found
        file = self._files.known(found.inode) or self._files.open(os.fsdecode(found.path), found.inode)
        walk = _Walk(file, found, readable.aborted)
        acquired = readable.window.acquire(walk.batches(), limits, terms, now_ns)
        if not acquired:
            return None
        return Found(walk.range_of(acquired[0].first, acquired[-1].last), acquired)

    def read_from(self, log: ShareLog, offset: int, max_bytes: int) -> tuple[bytes, int]:
        """Return whole batches from the one with an offset on, and the offset after them. Raises OSError."""
        _, end, _ = self._table.read_log(log.row)
        found = self._partitions.reader(*log).locate(offset, end, max_bytes)
        if found is None or not found.length:
            raise FileNotFoundError(f"no record at offset {offset}")
        return self.read(found), found.next_offset

    def read(self, found: FileSlice) -> bytes:
        """Return the bytes of records. Raises OSError."""
        file = self._files.known(found.inode) or self._files.open(os.fsdecode(found.path), found.inode)
        return os.pread(file.fd, found.length, found.position)


class _Walk:
    """Walks the batches of a slice, as far as they are needed."""

    def __init__(self, file: OpenFile, found: FileSlice, aborted: _Aborted) -> None:
        self._file, self._found = file, found
        self._aborted = sorted(aborted, key=lambda each: each[1])
        #: (last offset, position, end position) of the batches so far.
        self._places: list[tuple[int, int, int]] = []

    def batches(self) -> Iterator[LogBatch]:
        places = self._places
        open_aborted: set[int] = set()
        waiting = self._aborted
        for position, header in self._headers():
            last = header.last_offset
            places.append((last, position, position + header.size_bytes))
            if not self._aborted:
                yield LogBatch(header.base_offset, last)
                continue
            while waiting and waiting[0][1] <= last:
                open_aborted.add(waiting[0][0])
                waiting = waiting[1:]
            is_aborted = header.is_transactional and header.producer_id in open_aborted
            if header.is_control:
                open_aborted.discard(header.producer_id)
                is_aborted = False
            yield LogBatch(header.base_offset, last, is_aborted)

    def _headers(self) -> Iterator[tuple[int, BatchHeader]]:
        """Yield the batches up to one that cannot be read. Raises OSError if that is the first."""
        begin, end = self._found.position, self._found.position + self._found.length
        try:
            yield from scan_headers(self._file.fd, begin, end, _CHUNK_BYTES)
        except OSError:
            if not self._places:
                raise

    def range_of(self, first: int, last: int) -> FileSlice:
        """Return the part of the slice with the batches of these offsets."""
        path, inode, _, _, _ = self._found
        begin = next(position for end, position, _ in self._places if end >= first)
        stop = next(stop for end, _, stop in self._places if end >= last)
        return FileSlice(path, inode, begin, stop - begin, last + 1)
