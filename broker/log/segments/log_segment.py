"""One active segment in its owner: the log file, its indexes, and their staged entries.

Batches are staged (buffered, placed, indexed) without I/O and written together. A segment object may be planned before
its files exist: a roll happens in memory while batches are staged and on disk when they are written. Between two writes
its files may be closed, when other segments need the descriptors (`open_segments`). A large batch may be written after
`position` before it is staged (`write_ahead`); its header is written with the other batches. Only the owner of the
partition uses this; the file never changes again below `position`.
"""

import errno
import os
from contextlib import suppress
from pathlib import Path
from typing import TypeAlias

from rotunda.broker.log.indexes.offset_index import ENTRY as OFFSET_ENTRY
from rotunda.broker.log.indexes.offset_index import MAX_RELATIVE_OFFSET, OffsetIndex
from rotunda.broker.log.indexes.time_index import ENTRY as TIME_ENTRY
from rotunda.broker.log.indexes.time_index import NO_TIMESTAMP, TimeIndex
from rotunda.broker.log.indexes.transaction_index import TransactionIndex
from rotunda.broker.log.segments.open_segments import OPEN_SEGMENTS
from rotunda.broker.log.segments.segment_files import LOG_SUFFIX, remove_segment_files, segment_file
from rotunda.broker.records.record_batch import BATCH_HEADER_BYTES
from rotunda.broker.steps import Steps

#: Bytes in memory that are written to the file unchanged.
Chunk: TypeAlias = bytes | bytearray | memoryview

#: Kernel limit of buffers in one `pwritev`.
IOV_MAX = 1024

#: Bytes written ahead between two steps: half a millisecond.
_AHEAD_PIECE_BYTES = 512 * 1024


class LogSegment:
    """An active segment. `position` is the end of the written batches, `staged_position` that of the staged ones."""

    __slots__ = (
        "_ahead",
        "_bytes_since_index_entry",
        "_chunks",
        "_fd",
        "_full_entries",
        "_inode",
        "_largest_offset",
        "_roll_anchor_ms",
        "_roll_deadline_ms",
        "_rolls_by_wall",
        "base_offset",
        "directory",
        "full_bytes",
        "index",
        "index_interval_bytes",
        "max_timestamp_ms",
        "max_timestamp_offset",
        "path",
        "position",
        "staged_position",
        "time_index",
        "transaction_index",
    )

    def __init__(
        self,
        directory: Path,
        base_offset: int,
        *,
        index_interval_bytes: int,
        segment_index_bytes: int,
        existing: bool,
    ) -> None:
        self.directory = directory
        self.base_offset = base_offset
        self.path = segment_file(directory, base_offset, LOG_SUFFIX)
        self.index_interval_bytes = index_interval_bytes
        # One slot of the time index is reserved for the entry made when the segment is closed.
        self._full_entries = min(segment_index_bytes // OFFSET_ENTRY.size, segment_index_bytes // TIME_ENTRY.size - 1)
        self.position = 0
        self.staged_position = 0
        self.max_timestamp_ms = NO_TIMESTAMP
        self.max_timestamp_offset = base_offset
        self._bytes_since_index_entry = 0
        self._chunks: list[Chunk] = []
        #: A batch that is written after `position` already, except its header: nothing else has been written since.
        self._ahead: memoryview | None = None
        self._fd = -1
        #: Inode of the log file, once it has been open: a reopened file must have the same.
        self._inode = 0
        self._rolls_by_wall = True
        self._roll_anchor_ms = 0
        self._roll_deadline_ms = 0
        self._largest_offset = base_offset + MAX_RELATIVE_OFFSET
        #: The owner's segment.bytes; 0 once an index is full.
        self.full_bytes = 0
        self.index = OffsetIndex(directory, base_offset, writable=True, existing=existing)
        self.time_index = TimeIndex(directory, base_offset, writable=True, existing=existing)
        self.transaction_index = TransactionIndex(directory, base_offset, existing=existing)

    # ---- files -----------------------------------------------------------------------------------------------

    def create(self, preallocate_bytes: int = 0) -> None:
        """Create the empty files of a planned segment, overwriting existing ones."""
        self._fd = OPEN_SEGMENTS.open(self.path, os.O_RDWR | os.O_CREAT)
        self._inode = os.fstat(self._fd).st_ino
        os.ftruncate(self._fd, 0)
        if preallocate_bytes:
            os.posix_fallocate(self._fd, 0, preallocate_bytes)
        self.index.file.create()
        self.time_index.file.create()
        self.transaction_index.remove_file()
        OPEN_SEGMENTS.admit(self)

    def fileno(self) -> int:
        """Return the descriptor of the log file, opening it if necessary.

        Raises FileNotFoundError, also when it is another file than before.
        """
        if self._fd < 0:
            fd = OPEN_SEGMENTS.open(self.path, os.O_RDWR)
            inode = os.fstat(fd).st_ino
            if self._inode not in {0, inode}:
                os.close(fd)
                raise FileNotFoundError(errno.ENOENT, "replaced during an append", str(self.path))
            self._fd, self._inode = fd, inode
        return self._fd

    def is_present(self) -> bool:
        """Return whether the log file still has its name; True for a planned segment."""
        if not self._inode:
            return True
        try:
            return self.path.stat().st_ino == self._inode
        except FileNotFoundError:
            return False

    def cut(self, position: int, end_offset: int) -> None:
        """Truncate the file to `position` and remove index entries of later batches."""
        if os.fstat(self.fileno()).st_size != position:
            os.ftruncate(self.fileno(), position)
        self.index.cut(end_offset, position)
        self.time_index.cut(end_offset)
        self.transaction_index.cut(end_offset)
        self.position = self.staged_position = position
        self._chunks = []

    def resume_at(self, position: int) -> None:
        """Continue placing batches at `position`: the start of the file, or of the batch of the last index entry."""
        self.position = self.staged_position = position
        self._bytes_since_index_entry = 0
        self.max_timestamp_ms, self.max_timestamp_offset = self.time_index.last()

    def close(self) -> None:
        """Close the descriptors."""
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1
        OPEN_SEGMENTS.forget(self)
        self.index.file.close()
        self.time_index.file.close()
        self.transaction_index.file.close()

    def remove(self) -> None:
        """Close and delete the files."""
        self.close()
        remove_segment_files(self.directory, self.base_offset)

    # ---- staging and writing -----------------------------------------------------------------------------------

    def anchor_roll(self, first_timestamp_ms: int, now_ms: int, roll_after_ms: int, segment_bytes: int) -> None:
        """Set the size and the time at which the segment rolls; the time counts from its first batch's, or from now."""
        full = self.index.file.entries + self.index.file.pending_entries >= self._full_entries
        self.full_bytes = 0 if full else segment_bytes
        self._rolls_by_wall = first_timestamp_ms < 0
        self._roll_anchor_ms = now_ms if self._rolls_by_wall else first_timestamp_ms
        self._roll_deadline_ms = self._roll_anchor_ms + roll_after_ms

    def change_roll(self, roll_after_ms: int, segment_bytes: int) -> None:
        """Update the size and the time at which the segment rolls; the time counts from the same start as before."""
        self.full_bytes = segment_bytes if self.full_bytes else 0
        self._roll_deadline_ms = self._roll_anchor_ms + roll_after_ms

    def try_stage(self, batch: Chunk, size_bytes: int, last_offset: int, max_timestamp_ms: int, now_ms: int) -> bool:
        """Stage one batch, or return False if the segment is empty or the batch belongs in the next. HOT."""
        position = self.staged_position
        if (
            not position
            or position + size_bytes > self.full_bytes
            or (now_ms if self._rolls_by_wall else max_timestamp_ms) > self._roll_deadline_ms
            or last_offset > self._largest_offset
        ):
            return False
        if max_timestamp_ms > self.max_timestamp_ms:
            self.max_timestamp_ms = max_timestamp_ms
            self.max_timestamp_offset = last_offset
        unindexed = self._bytes_since_index_entry
        if unindexed > self.index_interval_bytes:
            self._index_batch(last_offset, position)
            unindexed = 0
        # After all that may fail: a batch that is not staged is not written.
        self._chunks.append(batch)
        self._bytes_since_index_entry = unindexed + size_bytes
        self.staged_position = position + size_bytes
        return True

    def _index_batch(self, last_offset: int, position: int) -> None:
        """Stage index entries for the batch at `position`; the last one that fits makes the segment full."""
        self.index.stage(last_offset, position)
        self.time_index.maybe_stage(self.max_timestamp_ms, self.max_timestamp_offset)
        if self.index.file.entries + self.index.file.pending_entries >= self._full_entries:
            self.full_bytes = 0

    def can_hold(self, last_offset: int) -> bool:
        """Return whether the indexes can express an offset."""
        return last_offset - self.base_offset <= MAX_RELATIVE_OFFSET

    def stage(self, batch: Chunk, size_bytes: int, last_offset: int, max_timestamp_ms: int) -> None:
        """Stage one batch of `size_bytes`. HOT."""
        self._chunks.append(batch)
        self.note_batch(size_bytes, last_offset, max_timestamp_ms)

    def note_batch(self, size_bytes: int, last_offset: int, max_timestamp_ms: int) -> None:
        """Place a batch after the staged ones: positions, timestamps, and an index entry if one is due. HOT."""
        position = self.staged_position
        if max_timestamp_ms > self.max_timestamp_ms:
            self.max_timestamp_ms = max_timestamp_ms
            self.max_timestamp_offset = last_offset
        if self._bytes_since_index_entry > self.index_interval_bytes:
            self._index_batch(last_offset, position)
            self._bytes_since_index_entry = 0
        self._bytes_since_index_entry += size_bytes
        self.staged_position = position + size_bytes

    def write(self) -> int:
        """Write the staged batches, then their index entries. HOT. Return the number of batches.

        Entries of aborted transactions are written first: a marker is never in the log without its entry. Raises
        OSError: the file may then end anywhere.
        """
        chunks = self._chunks
        if not chunks:
            return 0
        if self.transaction_index.file.pending_entries:
            self.transaction_index.file.write_pending()
        position = self.position
        fd = self._fd if self._fd >= 0 else self._open_again()
        if self._ahead is not None:
            self._write_rest(chunks, position)
        elif len(chunks) > IOV_MAX or os.pwritev(fd, chunks, position) != self.staged_position - position:
            self._write_in_parts(chunks, position)
        self._chunks = []
        self.position = self.staged_position
        if self.index.file.pending_entries:
            self.write_index_entries()
        return len(chunks)

    def fits(self, size_bytes: int) -> bool:
        """Return whether a batch of this size fits after the written ones."""
        return not self.position or self.position + size_bytes <= self.full_bytes

    def write_ahead(self, batch: memoryview) -> Steps[None]:
        """Write a batch in steps after `position`, where it belongs if it is staged next.

        Ends early when another batch is written there meanwhile. Raises OSError.
        """
        position, done = self.position, 0
        # This batch overwrites the one that was written ahead before.
        self._ahead = None
        while done < len(batch):
            if done:
                yield
            if self.position != position:
                return
            fd = self._fd if self._fd >= 0 else self._open_again()
            done += os.pwrite(fd, batch[done : done + _AHEAD_PIECE_BYTES], position + done)
        self._ahead = batch

    def forget_ahead(self) -> None:
        """Remove the batch that was written ahead, unless batches are staged."""
        if not self._chunks:
            self._ahead = None
            with suppress(OSError):
                os.ftruncate(self.fileno(), self.position)

    def _write_rest(self, chunks: list[Chunk], position: int) -> None:
        """Write the staged batches; if the first of them was written ahead, write only its header, last.

        The header has the assigned offset.
        """
        ahead, self._ahead = self._ahead, None
        if ahead is None or chunks[0] is not ahead:
            self._write_in_parts(chunks, position)
            return
        self._write_in_parts(chunks[1:], position + len(ahead))
        self._write_in_parts([ahead[:BATCH_HEADER_BYTES]], position)

    def _open_again(self) -> int:
        """Open the log file, register the segment as open, and return the descriptor. Raises OSError."""
        fd = self.fileno()
        OPEN_SEGMENTS.admit(self)
        return fd

    def _write_in_parts(self, chunks: list[Chunk], position: int) -> None:
        """Write all chunks from `position` on, up to IOV_MAX in one call, and continue after a short write."""
        fd = self.fileno()
        for first in range(0, len(chunks), IOV_MAX):
            views = [memoryview(chunk) for chunk in chunks[first : first + IOV_MAX]]
            while views:
                written = os.pwritev(fd, views, position)
                position += written
                while views and written >= len(views[0]):
                    written -= len(views.pop(0))
                if views:
                    views[0] = views[0][written:]

    def write_index_entries(self) -> None:
        """Write the staged entries of both indexes."""
        self.index.file.write_pending()
        self.time_index.file.write_pending()

    def become_inactive(self) -> None:
        """Finish a segment that is no longer active: largest timestamp, exact size, no descriptors."""
        self.finish_time_index()
        if os.fstat(self.fileno()).st_size != self.position:
            os.ftruncate(self.fileno(), self.position)
        self.close()

    def finish_time_index(self) -> None:
        """Make the largest timestamp of the segment the last entry of the time index, as on every close."""
        if self.max_timestamp_ms > NO_TIMESTAMP:
            self.time_index.maybe_stage(self.max_timestamp_ms, self.max_timestamp_offset)
            self.time_index.file.write_pending()

    def sync(self) -> None:
        """Make the data durable, then the indexes."""
        os.fdatasync(self.fileno())
        self.transaction_index.sync()
        self.index.file.sync()
        self.time_index.file.sync()
