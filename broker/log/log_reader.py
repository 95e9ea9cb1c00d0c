"""Finds records in the files of a partition. Any handler reads any partition, without a request to the owner.

A reader receives the published end and reads nothing beyond it. It keeps no file open and reads no records: the
response to a fetch is a position in a file, from which the processor sends. It caches the ends of the last slices, so a
fetch at the end of the log needs no system call.

Segments are deleted and replaced by compacted ones while a reader searches (`segment_swap`): a cache entry of a file is
valid for one inode, and a search result is valid only if the name still has the inode that was opened. The reader's
user calls `forget` when the owner has published a removal, and `forget_missing` at intervals. In between a slice may
name a file that has just been removed: its records can be read under the file's other name for a while. A compacted log
lacks offsets; a search for a missing offset returns the next batch.
"""

import logging
import os
from bisect import bisect_right
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple, TypeAlias

from rotunda.broker.log.checkpoints import CheckpointCorruptError
from rotunda.broker.log.leader_epochs import FILE_NAME, LeaderEpochs, read_epochs
from rotunda.broker.log.producers.aborted_transactions import AbortedTransactions
from rotunda.broker.log.segments.segment_files import LOG_SUFFIX, offsets_of, segment_file
from rotunda.broker.log.segments.segment_walk import SegmentWalk, check_not_replaced
from rotunda.broker.log.timestamp_search import SegmentSpan, TimestampOffset, first_at_or_after, largest
from rotunda.broker.steps import Steps

#: (log end offset, base offset of the last segment, position of the end in it), as published.
End: TypeAlias = tuple[int, int, int]

#: Cached positions: more than the usual number of consumers at the end of one partition.
REMEMBERED_PLACES = 32

#: Attempts of a search while segments are removed or replaced.
ATTEMPTS = 8

#: Cached slices that no append can change.
REMEMBERED_SLICES = 64

_log = logging.getLogger(__name__)


class FileSlice(NamedTuple):
    """Whole batches in one segment file, from the batch with the requested offset. `length` 0: no batches.

    `next_offset` follows the last record of the slice. `inode` identifies the file.
    """

    path: bytes
    inode: int
    position: int
    length: int
    next_offset: int


class SegmentFile(NamedTuple):
    """A segment file as the processor needs it."""

    path: bytes
    inode: int


class LogReader:
    """Reader of one partition directory."""

    __slots__ = (
        "_aborted",
        "_bases",
        "_epochs",
        "_epochs_seen",
        "_files",
        "_places",
        "_slices",
        "checked_at",
        "directory",
        "removals_seen",
    )

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        #: The owner's published removal count at this reader's last `forget`; set by the reader's user.
        self.removals_seen = 0
        #: The tick of the last `forget_missing`; set by the reader's user.
        self.checked_at = 0
        self._bases: list[int] = []
        self._files: dict[int, SegmentFile] = {}
        # Offset -> (base offset of its segment, position of its batch, inode), for the end offsets of earlier slices.
        self._places: dict[int, tuple[int, int, int]] = {}
        # (Offset, max bytes) -> the slice for that fetch.
        self._slices: dict[tuple[int, int], FileSlice] = {}
        self._epochs = LeaderEpochs()
        self._epochs_seen = (0, 0, 0)
        self._aborted = AbortedTransactions(directory)

    def locate(self, offset: int, end: End, max_bytes: int, *, min_one_batch: bool = True) -> FileSlice | None:
        """Return up to `max_bytes` of whole batches from the one with `offset`. HOT for fetches at the end of the log.

        All of them are in one segment and below `end`. A first batch larger than `max_bytes` is returned all the same
        if `min_one_batch`. None: `offset` is beyond the end or below the oldest segment (OFFSET_OUT_OF_RANGE).
        """
        end_offset, end_base, end_position = end
        place = self._places.get(offset)
        if place is not None and place[0] == end_base:
            _, position, known_inode = place
            path, inode = self._files[end_base]
            length = end_position - position
            if 0 < length <= max_bytes and inode == known_inode:
                self._remember(end_offset, (end_base, end_position, inode))
                return FileSlice(path, inode, position, length, end_offset)
        if offset >= end_offset:
            return FileSlice(b"", 0, 0, 0, end_offset) if offset == end_offset else None
        found = self._slices.get((offset, max_bytes))
        if found is not None and min_one_batch and found.next_offset <= end_offset:
            return found
        for _ in range(ATTEMPTS):
            try:
                found = self._search(offset, end, max_bytes, min_one_batch)
                if found is not None and min_one_batch and found.next_offset < end_offset:
                    # It ended below the end, because of max_bytes or of the segment: no append can make it longer.
                    self._remember_slice((offset, max_bytes), found)
                return found
            except FileNotFoundError:
                # Retention removed a segment: the retry lists the rest, and the offset is found in it or out of range.
                self.forget()
        return None

    def locate_committed(
        self, offset: int, stable_offset: int, end: End, max_bytes: int, *, min_one_batch: bool = True
    ) -> tuple[FileSlice | None, tuple[tuple[int, int], ...]]:
        """Return `locate` as if the log ended at its last stable offset, with the aborted transactions in that slice.

        `offset` is below the stable offset, which has been read before the end. The transactions are pairs of producer
        id and first offset, each with at least its marker at or after `offset`.
        """
        for _ in range(ATTEMPTS):
            try:
                base_offset, position, inode = self._place_of(stable_offset, end)
                stable_end = (min(stable_offset, end[0]), base_offset, position)
                found = self.locate(offset, stable_end, max_bytes, min_one_batch=min_one_batch)
                if found is None or not found.length:
                    return found, ()
                aborted = self._aborted.between(offset, found.next_offset, stable_offset, end[0], end[1])
            except FileNotFoundError:
                self.forget()
                continue
            # Compaction removes the entries of transactions together with their records: the entries must be from the
            # file that is sent, and so must the position of the stable offset. `locate` may have called `forget`.
            stable_file = self._files.get(base_offset)
            is_same = found.inode == inode or (stable_file is not None and found.path != stable_file.path)
            if is_same and found.next_offset <= stable_offset and _is_there(found):
                return found, aborted
            self.forget()
        return None, ()

    def _place_of(self, offset: int, end: End) -> tuple[int, int, int]:
        """Return (base offset of its segment, position, inode) of the batch with `offset`, or of the log's end.

        Raises FileNotFoundError.
        """
        end_offset, end_base, end_position = end
        place = self._places.get(offset)
        if offset >= end_offset:
            return end_base, end_position, self._inode_of(end_base)
        if place is not None:
            return place
        bases = self._bases_up_to(end_base)
        base_offset = bases[max(bisect_right(bases, offset) - 1, 0)]
        fd, (path, inode), size_bytes = self._open(base_offset)
        try:
            limit = end_position if base_offset == end_base else size_bytes
            batch = SegmentWalk(self.directory, base_offset, fd, limit).batch_with(offset, -1)
            check_not_replaced(path, inode)
        finally:
            os.close(fd)
        place = (base_offset, limit if batch is None else batch.position, inode)
        self._remember(offset, place)
        return place

    def _inode_of(self, base_offset: int) -> int:
        known = self._files.get(base_offset)
        if known is not None:
            return known.inode
        fd, file, _ = self._open(base_offset)
        os.close(fd)
        return file.inode

    def forget(self) -> None:
        """Clear the cache."""
        self._bases = []
        self._files = {}
        self._places = {}
        self._slices = {}
        self._aborted.forget()

    def forget_missing(self) -> None:
        """Clear the cache if the file of a cached slice has been removed by any process."""
        files = {(found.path, found.inode): found for found in self._slices.values()}
        if not all(map(_is_there, files.values())):
            self.forget()

    def _remember_slice(self, asked: tuple[int, int], found: FileSlice) -> None:
        """Cache a slice: other consumers of the same records send the same fetch."""
        self._slices[asked] = found
        if len(self._slices) > REMEMBERED_SLICES:
            del self._slices[next(iter(self._slices))]

    def _remember(self, offset: int, place: tuple[int, int, int]) -> None:
        places = self._places
        places[offset] = place
        if len(places) > REMEMBERED_PLACES:
            del places[next(iter(places))]

    def _bases_up_to(self, end_base: int) -> list[int]:
        """Return the base offsets of the published segments, `end_base` last.

        Newer segments may be created and removed.

        So the cached list is valid only if it has `end_base`: after a rollback the log may continue with a smaller base
        offset. If the log has grown since the end was read, `end_base` may have been merged into the segment before it.
        Raises FileNotFoundError when there is no segment beyond it either: the partition is being deleted.
        """
        bases = self._bases
        published = bases[: bisect_right(bases, end_base)]
        if not published or published[-1] != end_base:
            bases = self._bases = offsets_of(self.directory, LOG_SUFFIX)
            published = bases[: bisect_right(bases, end_base)]
        if not published or (published[-1] != end_base and bases[-1] < end_base):
            raise FileNotFoundError(f"{self.directory}: segment {end_base}")
        return published

    def _open(self, base_offset: int) -> tuple[int, SegmentFile, int]:
        """Open a published segment; return (descriptor, its path and inode, its size). Raises FileNotFoundError."""
        known = self._files.get(base_offset)
        path = known.path if known else os.fsencode(segment_file(self.directory, base_offset, LOG_SUFFIX))
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW)
        status = os.fstat(fd)
        if known is None or known.inode != status.st_ino:
            known = self._files[base_offset] = SegmentFile(path, status.st_ino)
        return fd, known, status.st_size

    @staticmethod
    def _first_number(bases: list[int], offset: int, known_base: int) -> int:
        """Return the number of the segment to search first; -1 if all begin above `offset`."""
        number = bisect_right(bases, known_base) - 1
        return number if number >= 0 and bases[number] == known_base else bisect_right(bases, offset) - 1

    def _search(self, offset: int, end: End, max_bytes: int, min_one_batch: bool) -> FileSlice | None:
        """Find `offset`, which is below the end, and return the slice from there on. Raises FileNotFoundError."""
        end_offset, end_base, end_position = end
        known_base, known_position, known_inode = self._places.get(offset, (-1, -1, -1))
        bases = self._bases_up_to(end_base)
        first = self._first_number(bases, offset, known_base)
        if first < 0:
            return None
        for number in range(first, len(bases)):
            base_offset = bases[number]
            is_last = base_offset == end_base
            fd, (path, inode), size_bytes = self._open(base_offset)
            try:
                walk = SegmentWalk(self.directory, base_offset, fd, end_position if is_last else size_bytes)
                is_known = base_offset == known_base and inode == known_inode
                batch = walk.batch_with(offset, known_position if is_known else -1)
                if batch is not None:
                    # The end of a segment is not derived from the list: it may just be merged with the next one.
                    length, next_offset = walk.whole_batches(batch, max_bytes, end_offset if is_last else -1)
                check_not_replaced(path, inode)
            finally:
                os.close(fd)
            if batch is None:
                continue
            if batch.size_bytes > max_bytes and not min_one_batch:
                return FileSlice(b"", 0, 0, 0, offset)
            self._remember(next_offset, (base_offset, batch.position + length, inode))
            return FileSlice(path, inode, batch.position, length, next_offset)
        return FileSlice(b"", 0, 0, 0, end_offset)

    def offset_for_timestamp(self, timestamp_ms: int, start_offset: int, end: End) -> Steps[TimestampOffset | None]:
        """Search for the first record in [start_offset, end) with this timestamp or a later one, or None.

        Raises ApiError when the batch that should hold it cannot be read.
        """
        for _ in range(ATTEMPTS):
            try:
                return (yield from first_at_or_after(self.directory, self._spans(end), timestamp_ms, start_offset))
            except FileNotFoundError:
                self.forget()
        return None

    def max_timestamp(self, start_offset: int, end: End) -> Steps[TimestampOffset | None]:
        """Search for the first of the records with the largest timestamp, or None if no record has one (KIP-734)."""
        for _ in range(ATTEMPTS):
            try:
                return (yield from largest(self.directory, self._spans(end), start_offset))
            except FileNotFoundError:
                self.forget()
        return None

    def _spans(self, end: End) -> list[SegmentSpan]:
        end_offset, end_base, end_position = end
        bases = self._bases_up_to(end_base)
        spans = [SegmentSpan(base, following, None) for base, following in pairwise(bases)]
        return [*spans, SegmentSpan(bases[-1], end_offset, end_position if bases[-1] == end_base else None)]

    def epoch_for_offset(self, offset: int) -> int:
        """Return the leader epoch that wrote `offset`, or -1."""
        return self._leader_epochs().epoch_for_offset(offset)

    def epoch_end_offset(self, epoch: int, log_end_offset: int) -> tuple[int, int]:
        """Return (epoch, end offset) as in OffsetForLeaderEpoch; (-1, -1) for an unknown epoch (KIP-320)."""
        return self._leader_epochs().end_offset_for(epoch, log_end_offset)

    def _leader_epochs(self) -> LeaderEpochs:
        try:
            status = (self.directory / FILE_NAME).stat()
        except FileNotFoundError:
            return LeaderEpochs()
        seen = (status.st_ino, status.st_mtime_ns, status.st_size)
        if seen != self._epochs_seen:
            self._epochs_seen = seen
            try:
                self._epochs = read_epochs(self.directory)
            except CheckpointCorruptError as error:
                # The cached epochs are correct except for the newest; the owner rewrites the file.
                _log.warning("cannot read the leader epochs, to be rebuilt at the next start: %s", error)
        return self._epochs


def _is_there(found: FileSlice) -> bool:
    """Return whether the file of a cached slice still exists."""
    try:
        return os.stat(found.path).st_ino == found.inode  # noqa: PTH116 - the path is bytes and this is per request
    except FileNotFoundError:
        return False
