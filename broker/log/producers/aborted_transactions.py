"""The aborted transactions of a partition, for fetches with read_committed. Any handler reads them.

The owner writes the entry of an abort marker before the marker, and moves the last stable offset beyond the marker
after both. So a process that has read a last stable offset, and then the end of the log, finds an entry for every
aborted transaction that begins below the first, with a marker below the second. Entries beyond that end may appear and
disappear when an owner is killed: they are not cached. A partition without aborted transactions has no such files, and
a look-up costs one stat call.
"""

import os
from bisect import bisect_left
from operator import attrgetter
from pathlib import Path

from rotunda.broker.log.indexes.transaction_index import ENTRY, AbortedTransaction
from rotunda.broker.log.segments.segment_files import TXN_INDEX_SUFFIX, offsets_of, segment_file

_last_offset = attrgetter("last_offset")


class AbortedTransactions:
    """Cached aborted transactions of one partition: of all segments before the tail, and of the tail's first bytes."""

    __slots__ = ("_directory", "_entries", "_known_to", "_tail_base", "_tail_bytes", "_tail_path")

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self.forget()

    def forget(self) -> None:
        """Clear the cache: files were replaced."""
        self._entries: list[AbortedTransaction] = []
        #: All aborted transactions that begin below this offset are cached.
        self._known_to = 0
        self._tail_base = -1
        self._tail_bytes = 0
        self._tail_path = b""

    def between(
        self, fetch_offset: int, upper_offset: int, stable_offset: int, end_offset: int, end_base: int
    ) -> tuple[tuple[int, int], ...]:
        """Return (producer id, first offset) of those with records in [fetch_offset, upper_offset).

        The upper offset is at most the last stable offset, which was read before the end of the log. Raises
        FileNotFoundError when the partition was deleted.
        """
        if upper_offset > self._known_to:
            self._catch_up(stable_offset, end_offset, end_base)
        entries = self._entries
        if not entries:
            return ()
        found = []
        for number in range(bisect_left(entries, fetch_offset, key=_last_offset), len(entries)):
            producer_id, first_offset, _, last_stable_offset = entries[number]
            if first_offset < upper_offset:
                found.append((producer_id, first_offset))
            if last_stable_offset >= upper_offset:
                break  # later entries belong to later transactions
        return tuple(found)

    def _catch_up(self, stable_offset: int, end_offset: int, end_base: int) -> None:
        if end_base != self._tail_base:
            self._move_tail(end_offset, end_base)
        self._read(self._tail_path, self._tail_bytes, end_offset)
        self._known_to = stable_offset

    def _move_tail(self, end_offset: int, end_base: int) -> None:
        """Read the segments that are complete now: their indexes do not change any more."""
        bases = offsets_of(self._directory, TXN_INDEX_SUFFIX)
        oldest = bases[0] if bases else end_base
        self._entries = [entry for entry in self._entries if entry.last_offset >= oldest]
        for base_offset in bases:
            if self._tail_base <= base_offset < end_base:
                start = self._tail_bytes if base_offset == self._tail_base else 0
                self._read(self._path(base_offset), start, end_offset)
        self._tail_base = end_base
        self._tail_path = self._path(end_base)
        self._tail_bytes = 0

    def _path(self, base_offset: int) -> bytes:
        return os.fsencode(segment_file(self._directory, base_offset, TXN_INDEX_SUFFIX))

    def _read(self, path: bytes, start: int, end_offset: int) -> None:
        """Cache the entries from byte `start` on whose markers are below the end."""
        try:
            size_bytes = os.stat(path).st_size - start  # noqa: PTH116  # the path is bytes and this is per request
            if size_bytes < ENTRY.size:
                return
            fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW)
        except FileNotFoundError:
            return
        try:
            data = os.pread(fd, size_bytes, start)
        finally:
            os.close(fd)
        self._tail_bytes = start
        for _, *fields in ENTRY.iter_unpack(data[: len(data) - len(data) % ENTRY.size]):
            entry = AbortedTransaction(*fields)
            if entry.last_offset >= end_offset:
                return
            self._entries.append(entry)
            self._tail_bytes += ENTRY.size
