"""Writes the files of a compacted segment: `X.log.cleaned` and its indexes.

Runs in the cleaner process. They are whole and durable before the owner receives the swap task; incomplete files are
never read, and the next attempt removes them.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path

from rotunda.broker.log.indexes.offset_index import ENTRY as OFFSET_ENTRY
from rotunda.broker.log.indexes.time_index import ENTRY as TIME_ENTRY
from rotunda.broker.log.indexes.time_index import NO_TIMESTAMP
from rotunda.broker.log.indexes.transaction_index import ENTRY as TRANSACTION_ENTRY
from rotunda.broker.log.indexes.transaction_index import VERSION as TRANSACTION_VERSION
from rotunda.broker.log.indexes.transaction_index import AbortedTransaction
from rotunda.broker.log.segments.segment_files import (
    CLEANED_SUFFIX,
    INDEX_SUFFIX,
    LOG_SUFFIX,
    SEGMENT_SUFFIXES,
    TIME_INDEX_SUFFIX,
    TXN_INDEX_SUFFIX,
    remove_if_there,
    segment_file,
)

#: Bytes buffered before a write.
BUFFER_BYTES = 1024 * 1024


class CleanedSegment:
    """A segment that begins at `base_offset`; `size_bytes` is the size of its log file when it is finished."""

    def __init__(self, directory: Path, base_offset: int, index_interval_bytes: int) -> None:
        remove_cleaned_files(directory, base_offset)
        self._directory = directory
        self._base_offset = base_offset
        self._index_interval_bytes = index_interval_bytes
        self._fd = os.open(
            self._path(LOG_SUFFIX), os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC | os.O_NOFOLLOW, 0o644
        )
        self._buffer = bytearray()
        self._offsets = bytearray()
        self._times = bytearray()
        self._unindexed_bytes = 0
        self._largest_ms, self._largest_offset, self._indexed_ms = NO_TIMESTAMP, base_offset, NO_TIMESTAMP
        self.size_bytes = 0

    def append(self, batch: bytes | memoryview, last_offset: int, max_timestamp_ms: int) -> None:
        """Append a batch. Raises OSError."""
        if max_timestamp_ms > self._largest_ms:
            self._largest_ms, self._largest_offset = max_timestamp_ms, last_offset
        if self._unindexed_bytes > self._index_interval_bytes:
            self._offsets += OFFSET_ENTRY.pack(last_offset - self._base_offset, self.size_bytes)
            self._index_time()
            self._unindexed_bytes = 0
        self._unindexed_bytes += len(batch)
        self.size_bytes += len(batch)
        self._buffer += batch
        if len(self._buffer) >= BUFFER_BYTES:
            self._flush()

    def finish(self, aborted: Iterable[AbortedTransaction], modified_ns: int) -> None:
        """Write the buffered rest and the indexes, sync them, and set the log file's modification time.

        Raises OSError.
        """
        self._index_time()
        self._flush()
        os.utime(self._fd, ns=(modified_ns, modified_ns))
        os.fsync(self._fd)
        self.close()
        entries = b"".join(TRANSACTION_ENTRY.pack(TRANSACTION_VERSION, *each) for each in aborted)
        for suffix, content in (
            (INDEX_SUFFIX, self._offsets),
            (TIME_INDEX_SUFFIX, self._times),
            (TXN_INDEX_SUFFIX, entries),
        ):
            fd = os.open(
                self._path(suffix), os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC | os.O_NOFOLLOW, 0o644
            )
            try:
                _write(fd, content)
                os.fsync(fd)
            finally:
                os.close(fd)

    def close(self) -> None:
        """Close the log file."""
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1

    def discard(self) -> None:
        """Delete the files."""
        self.close()
        remove_cleaned_files(self._directory, self._base_offset)

    def _index_time(self) -> None:
        if self._largest_ms > self._indexed_ms:
            self._times += TIME_ENTRY.pack(self._largest_ms, self._largest_offset - self._base_offset)
            self._indexed_ms = self._largest_ms

    def _flush(self) -> None:
        _write(self._fd, self._buffer)
        self._buffer = bytearray()

    def _path(self, suffix: str) -> Path:
        return segment_file(self._directory, self._base_offset, suffix + CLEANED_SUFFIX)


def remove_cleaned_files(directory: Path, base_offset: int) -> None:
    """Delete the files of an earlier attempt."""
    for suffix in SEGMENT_SUFFIXES:
        remove_if_there(segment_file(directory, base_offset, suffix + CLEANED_SUFFIX))


def _write(fd: int, content: bytes | bytearray) -> None:
    view = memoryview(content)
    while view:
        view = view[os.write(fd, view) :]
