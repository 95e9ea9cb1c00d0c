"""A file of fixed-size, ascending entries: the common part of the offset index and the time index.

The owner of a partition appends; any handler may search. Entries are read with `pread` and never mapped: truncating a
mapped file kills its readers. A reader may see entries beyond the published end, which is harmless: they belong to
larger offsets than any that it searches for.
"""

import os
import struct
from pathlib import Path

from rotunda.broker.log.segments.open_segments import OPEN_SEGMENTS


class IndexFile:
    """Entries of one `struct` format; the file is opened at its first use."""

    __slots__ = ("_fd", "_is_whole", "_pending", "entries", "entry", "path", "pending_entries", "writable")

    def __init__(self, path: Path, entry: struct.Struct, *, writable: bool, existing: bool = True) -> None:
        self.path = path
        self.entry = entry
        self.writable = writable
        self._fd = -1
        self._pending = bytearray()
        self.pending_entries = 0
        #: The file is known to hold `entries` entries and nothing else.
        self._is_whole = False
        self.entries = self._count() if existing else 0

    def _count(self) -> int:
        try:
            size_bytes = self.path.stat().st_size
        except FileNotFoundError:
            return 0
        self._is_whole = size_bytes % self.entry.size == 0
        return size_bytes // self.entry.size

    def is_whole(self) -> bool:
        """Return whether the file ends with a whole entry, or is missing."""
        try:
            return self.path.stat().st_size % self.entry.size == 0
        except FileNotFoundError:
            return True

    def _open(self) -> int:
        if self._fd < 0:
            flags = os.O_RDWR | os.O_CREAT if self.writable else os.O_RDONLY
            self._fd = OPEN_SEGMENTS.open(self.path, flags)
        return self._fd

    def create(self) -> None:
        """Create an empty file, or truncate the existing one."""
        self.truncate(0)

    def read(self, index: int) -> tuple[int, ...]:
        """Return the fields of entry `index`, which is below `entries`.

        Raises FileNotFoundError when the file has been cut or replaced since its entries were counted.
        """
        entry = self.entry
        data = os.pread(self._open(), entry.size, index * entry.size)
        if len(data) < entry.size:
            raise FileNotFoundError(f"{self.path}: cut or replaced meanwhile")
        return entry.unpack(data)

    def floor(self, field: int, target: int) -> int:
        """Return the number of the last entry whose `field` is <= `target`, or -1."""
        return self._search(field, target)[0]

    def floor_entry(self, field: int, target: int) -> tuple[int, ...] | None:
        """Return the fields of the last entry whose `field` is <= `target`, or None."""
        return self._search(field, target)[1]

    def _search(self, field: int, target: int) -> tuple[int, tuple[int, ...] | None]:
        entry, size = self.entry, self.entry.size
        low, high = 0, self.entries
        found = None
        fd = self._open() if high else -1
        while low < high:
            middle = (low + high) // 2
            data = os.pread(fd, size, middle * size)
            # Shorter: the owner cut the file after this reader counted its entries.
            if len(data) == size and (fields := entry.unpack(data))[field] <= target:
                low = middle + 1
                found = fields
            else:
                high = middle
        return low - 1, found

    def stage(self, *fields: int) -> None:
        """Add an entry for the next `write_pending`."""
        self._pending += self.entry.pack(*fields)
        self.pending_entries += 1

    def write_pending(self) -> None:
        """Write the staged entries. Raises OSError; the entries then stay staged and the file may be torn."""
        if not self.pending_entries:
            return
        pending = self._pending
        position = self.entries * self.entry.size
        written = 0
        self._is_whole = False
        while written < len(pending):
            written += os.pwrite(self._open(), pending[written:], position + written)
        self.entries += self.pending_entries
        self._is_whole = True
        self.pending_entries = 0
        self._pending = bytearray()

    def truncate(self, entries: int) -> None:
        """Cut the file after the first `entries` entries; discard staged entries and a torn entry at the end."""
        if not self._is_whole or entries != self.entries:
            self._is_whole = False
            os.ftruncate(self._open(), entries * self.entry.size)
        self.entries, self._is_whole = entries, True
        self.pending_entries = 0
        self._pending = bytearray()

    def sync(self) -> None:
        """Make the entries durable."""
        os.fsync(self._open())

    def close(self) -> None:
        """Close the file descriptor; the next use opens the file again."""
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1
