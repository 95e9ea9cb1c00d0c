"""The aborted transactions of a segment: Kafka's `.txnindex`, one entry for every abort marker in the segment.

The owner of the partition stages an entry with the marker and writes it before the marker, so a reader with a last
stable offset beyond the marker finds the entry. The file is created with its first entry: most segments have none.
Readers use `aborted_transactions`.
"""

import struct
from itertools import takewhile
from pathlib import Path
from typing import NamedTuple

from rotunda.broker.log.indexes.index_file import IndexFile
from rotunda.broker.log.segments.segment_files import TXN_INDEX_SUFFIX, segment_file

ENTRY = struct.Struct(
    ">h"  # version
    "q"  # producer id
    "q"  # first offset
    "q"  # offset of the marker
    "q"  # last stable offset after the marker
)
LAST_OFFSET = 3
VERSION = 0


class AbortedTransaction(NamedTuple):
    """An aborted transaction: its records are in [first_offset, last_offset), its marker is at last_offset."""

    producer_id: int
    first_offset: int
    last_offset: int
    last_stable_offset: int


class TransactionIndex:
    """The `.txnindex` file of the segment that starts at `base_offset`."""

    __slots__ = ("base_offset", "file")

    def __init__(self, directory: Path, base_offset: int, *, existing: bool = True) -> None:
        self.base_offset = base_offset
        path = segment_file(directory, base_offset, TXN_INDEX_SUFFIX)
        self.file = IndexFile(path, ENTRY, writable=True, existing=existing)

    def stage(self, aborted: AbortedTransaction) -> None:
        """Stage the entry of a marker that is being staged."""
        self.file.stage(VERSION, *aborted)

    def entries(self) -> list[AbortedTransaction]:
        """Return the valid entries at the start of the file: each has a later marker than the one before."""
        found: list[AbortedTransaction] = []
        previous = self.base_offset - 1
        for number in range(self.file.entries):
            version, *fields = self.file.read(number)
            aborted = AbortedTransaction(*fields)
            if version != VERSION or not 0 <= aborted.first_offset < aborted.last_offset > previous:
                break
            found.append(aborted)
            previous = aborted.last_offset
        return found

    def cut(self, end_offset: int) -> None:
        """Remove every entry with a marker at or beyond `end_offset`. A binary search: the offsets ascend."""
        self._keep(self.file.floor(LAST_OFFSET, end_offset - 1) + 1)

    def repair(self, end_offset: int) -> None:
        """Remove every entry with a marker at or beyond `end_offset`, and the invalid entries at the end."""
        kept = sum(1 for _ in takewhile(lambda aborted: aborted.last_offset < end_offset, self.entries()))
        self._keep(kept)

    def _keep(self, kept: int) -> None:
        if kept != self.file.entries or not self.file.is_whole():
            self.file.truncate(kept)

    def remove_file(self) -> None:
        """Delete a leftover file with the name of a new segment's; staged entries stay."""
        self.file.path.unlink(missing_ok=True)

    def sync(self) -> None:
        """Make the entries durable."""
        if self.file.entries:
            self.file.sync()
