"""Sparse time index of a segment: the largest timestamp so far -> the offset of its batch.

Kafka's `.timeindex`: per entry a timestamp (8 bytes) and the offset relative to the base offset (4 bytes), big endian.
Timestamps strictly ascend. When a segment is closed its largest timestamp becomes the last entry.
"""

import struct
from pathlib import Path

from rotunda.broker.log.indexes.index_file import IndexFile
from rotunda.broker.log.segments.segment_files import TIME_INDEX_SUFFIX, segment_file

ENTRY = struct.Struct(
    ">q"  # timestamp, ms
    "I"  # offset relative to the base offset
)
TIMESTAMP, RELATIVE_OFFSET = 0, 1

NO_TIMESTAMP = -1


class TimeIndex:
    """The `.timeindex` file of the segment that starts at `base_offset`."""

    __slots__ = ("_last_timestamp_ms", "base_offset", "file")

    def __init__(self, directory: Path, base_offset: int, *, writable: bool, existing: bool = True) -> None:
        self.base_offset = base_offset
        self.file = IndexFile(
            segment_file(directory, base_offset, TIME_INDEX_SUFFIX),
            ENTRY,
            writable=writable,
            existing=existing,
        )
        self._last_timestamp_ms = self.last()[0]

    def last(self) -> tuple[int, int]:
        """Return (timestamp, offset) of the last entry in the file, or (-1, base offset)."""
        if not self.file.entries:
            return NO_TIMESTAMP, self.base_offset
        timestamp_ms, relative_offset = self.file.read(self.file.entries - 1)
        return timestamp_ms, self.base_offset + relative_offset

    def last_below(self, end_offset: int) -> tuple[int, int]:
        """Return (timestamp, offset) of the last entry with an offset below `end_offset`, or (-1, base offset)."""
        found = self.file.floor_entry(RELATIVE_OFFSET, end_offset - self.base_offset - 1)
        if found is None:
            return NO_TIMESTAMP, self.base_offset
        return found[TIMESTAMP], self.base_offset + found[RELATIVE_OFFSET]

    def maybe_stage(self, timestamp_ms: int, offset: int) -> None:
        """Stage an entry if its timestamp is larger than that of the last one."""
        if timestamp_ms > self._last_timestamp_ms:
            self.file.stage(timestamp_ms, offset - self.base_offset)
            self._last_timestamp_ms = timestamp_ms

    def floor(self, timestamp_ms: int) -> tuple[int, int] | None:
        """Return (timestamp, offset) of the last entry at or before `timestamp_ms`, or None.

        Every batch before the one with that offset has only smaller timestamps.
        """
        found = self.file.floor_entry(TIMESTAMP, timestamp_ms)
        return None if found is None else (found[TIMESTAMP], self.base_offset + found[RELATIVE_OFFSET])

    def cut(self, end_offset: int) -> None:
        """Remove every entry with an offset of `end_offset` or more."""
        self.file.truncate(self.file.floor(RELATIVE_OFFSET, end_offset - self.base_offset - 1) + 1)
        self._last_timestamp_ms = self.last()[0]
