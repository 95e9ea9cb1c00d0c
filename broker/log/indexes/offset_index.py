"""Sparse offset index of a segment: the last offset of a batch -> the start position of that batch.

Kafka's `.index`: per entry the offset relative to the base offset (4 bytes) and the position (4 bytes), big endian. The
owner stages entries while it stages batches; readers look up positions. Independent of the batch format.
"""

import struct
from pathlib import Path

from rotunda.broker.log.indexes.index_file import IndexFile
from rotunda.broker.log.segments.segment_files import INDEX_SUFFIX, segment_file

ENTRY = struct.Struct(
    ">I"  # offset relative to the base offset
    "I"  # position in the log file
)
RELATIVE_OFFSET, POSITION = 0, 1

#: The largest offset that an index can express relative to its base offset.
MAX_RELATIVE_OFFSET = 2**31 - 1


class OffsetIndex:
    """The `.index` file of the segment that starts at `base_offset`."""

    __slots__ = ("base_offset", "file")

    def __init__(self, directory: Path, base_offset: int, *, writable: bool, existing: bool = True) -> None:
        self.base_offset = base_offset
        self.file = IndexFile(
            segment_file(directory, base_offset, INDEX_SUFFIX), ENTRY, writable=writable, existing=existing
        )

    def stage(self, last_offset: int, position: int) -> None:
        """Stage the entry of the batch that ends with `last_offset` and starts at `position`."""
        self.file.stage(last_offset - self.base_offset, position)

    def floor(self, offset: int) -> tuple[int, int] | None:
        """Return (last offset of the batch, position) of the last entry at or below `offset`, or None."""
        found = self.file.floor_entry(RELATIVE_OFFSET, offset - self.base_offset)
        return None if found is None else (self.base_offset + found[RELATIVE_OFFSET], found[POSITION])

    def lookup(self, offset: int) -> int:
        """Return the position from which to scan for the batch with `offset`: a batch start at or before it, or 0."""
        found = self.file.floor_entry(RELATIVE_OFFSET, offset - self.base_offset)
        return 0 if found is None else found[POSITION]

    def lookup_position(self, position: int) -> int:
        """Return the last batch start in the index that is <= `position`, or 0."""
        found = self.file.floor_entry(POSITION, position)
        return 0 if found is None else found[POSITION]

    def last(self) -> tuple[int, int] | None:
        """Return (last offset of the batch, position) of the last entry, or None when there is none."""
        if not self.file.entries:
            return None
        relative_offset, position = self.file.read(self.file.entries - 1)
        return self.base_offset + relative_offset, position

    def cut(self, end_offset: int, end_position: int) -> None:
        """Remove every entry of a batch that is not wholly below `end_offset` and `end_position`."""
        by_offset = self.file.floor(RELATIVE_OFFSET, end_offset - self.base_offset - 1)
        by_position = self.file.floor(POSITION, end_position - 1)
        self.file.truncate(min(by_offset, by_position) + 1)
