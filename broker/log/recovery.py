"""The recovery of a partition's files when its log is opened. Runs in the owner, before any append.

Two cases. A *replacement* of a killed handler receives the published end, which is authoritative: anything beyond it
was never acknowledged and is removed - bytes of the last segment, index entries, an unfinished next segment, newer
snapshots. A *start of the broker* has only checkpoints: below the recovery point the files are durable; from there on
the checksum of every batch is verified, and the log ends before the first invalid batch. The last index interval is
always verified; durable bytes that are removed are kept in another file.

In both cases producer state is then rebuilt to match the remaining batches (`producer_recovery`).
"""

import logging
import os
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from rotunda.broker.errors import RotundaError
from rotunda.broker.log.checkpoints import set_aside, unused_aside
from rotunda.broker.log.index_repair import repair_indexes
from rotunda.broker.log.indexes.time_index import NO_TIMESTAMP
from rotunda.broker.log.indexes.transaction_index import TransactionIndex
from rotunda.broker.log.lost_files import report_emptied, report_lost, report_set_aside
from rotunda.broker.log.segments.log_segment import LogSegment
from rotunda.broker.log.segments.segment_files import (
    INDEX_SUFFIX,
    LEFTOVER_SUFFIXES,
    LOG_SUFFIX,
    SEGMENT_SUFFIXES,
    SNAPSHOT_SUFFIX,
    SWAP_SUFFIX,
    TIME_INDEX_SUFFIX,
    TXN_INDEX_SUFFIX,
    offsets_in,
    remove_if_there,
    remove_segment_files,
    segment_file,
)
from rotunda.broker.log.segments.segment_scan import has_largest, marker_at, scan_headers, scan_verified
from rotunda.broker.log.segments.segment_swap import complete_swaps
from rotunda.broker.records.record_batch import BatchHeader

_log = logging.getLogger(__name__)

#: Files that can be rebuilt from the batches.
_MADE_AGAIN = (INDEX_SUFFIX, TIME_INDEX_SUFFIX, TXN_INDEX_SUFFIX, SNAPSHOT_SUFFIX)


class PublishedEnd(NamedTuple):
    """The end of the log in shared memory, as an offset and a file position, for a replacement."""

    end_offset: int
    segment_base: int
    position: int
    log_start_offset: int
    recovery_point: int = 0
    leader_epoch: int = -1


class Checkpointed(NamedTuple):
    """The entries of a partition in the checkpoint files, for a start of the broker."""

    recovery_point: int = 0
    log_start_offset: int = 0
    end_offset: int = 0
    #: The broker was shut down cleanly: the log began and ended at these offsets, and missing records mean removed
    #: files.
    is_exact: bool = False
    #: Unless files were removed, there is a batch for every offset: `is_exact`, and never compacted.
    is_gapless: bool = False

    @property
    def known_end(self) -> int:
        """The offset below which every offset was used, as far as is known."""
        return max(self.recovery_point, self.log_start_offset, self.end_offset)


class SegmentInfo(NamedTuple):
    """A segment and the size of its log file."""

    base_offset: int
    size_bytes: int


class SegmentShape(NamedTuple):
    """The index settings of the topic's configuration."""

    index_interval_bytes: int
    segment_index_bytes: int


class LoadedFiles(NamedTuple):
    """A log whose files hold whole batches up to `end_offset` and nothing else."""

    rolled: list[SegmentInfo]
    active: LogSegment
    end_offset: int
    epoch_starts: list[tuple[int, int]]  # (leader epoch, first offset seen with it), for the batches that were scanned
    unindexed_from: int  # from here on abort markers may lack their entries; `end_offset` if all have them

    def bases(self) -> list[int]:
        """Return the base offsets of the segments, ascending."""
        return [*(info.base_offset for info in self.rolled), self.active.base_offset]

    def first_timestamp_ms(self) -> int:
        """Return the largest timestamp of the first batch of the active segment, or -1."""
        first = next(scan_headers(self.active.fileno(), 0, self.active.position), None)
        return first[1].max_timestamp if first else -1


class LogDamaged(RotundaError):  # noqa: N818  # said as it is
    """The files of a partition contradict the acknowledged state; appends would make the damage worse."""


def load_files(directory: Path, shape: SegmentShape, resume: PublishedEnd | Checkpointed) -> LoadedFiles:
    """Repair the files of `directory` and return the remaining log. Raises LogDamaged, OSError."""
    bases = _remove_leftovers(directory)
    report_emptied(directory, bases[:-1])
    if isinstance(resume, PublishedEnd):
        return _cut_to_published(directory, bases, shape, resume)
    return _recover(directory, bases, shape, resume)


def restore_files(
    directory: Path, rolled: list[SegmentInfo], begun: Iterable[int], shape: SegmentShape, published: PublishedEnd
) -> LoadedFiles:
    """Roll back a failed write of this process: remove the segments at `begun`; `rolled` are the committed ones.

    The other files are unchanged, and are not listed. Raises LogDamaged, OSError.
    """
    for base_offset in begun:
        remove_segment_files(directory, base_offset)
    return _cut_active(directory, rolled, shape, published)


def new_segment(directory: Path, base_offset: int, shape: SegmentShape, *, existing: bool = True) -> LogSegment:
    """Return the segment object; one that is not `existing` has no files yet."""
    return LogSegment(
        directory,
        base_offset,
        index_interval_bytes=shape.index_interval_bytes,
        segment_index_bytes=shape.segment_index_bytes,
        existing=existing,
    )


def _remove_leftovers(directory: Path) -> list[int]:
    """Complete interrupted swaps and remove leftover files; return the base offsets of the segments."""
    names = _files_in(directory)
    if any(name.endswith(SWAP_SUFFIX) for name in names):
        complete_swaps(directory)
        names = os.listdir(directory)
    for name in names:
        if name.endswith(LEFTOVER_SUFFIXES):
            remove_if_there(directory / name)
    bases = offsets_in(names, LOG_SUFFIX)
    for suffix in SEGMENT_SUFFIXES[1:]:
        for base_offset in set(offsets_in(names, suffix)).difference(bases):
            remove_if_there(segment_file(directory, base_offset, suffix))
    return bases


def _files_in(directory: Path) -> list[str]:
    """Return the names of a partition's files.

    Directories and symbolic links in place of an index or a snapshot are renamed: these files are rebuilt from the
    batches. Raises LogDamaged for a link in place of a log file.
    """
    names = []
    with os.scandir(directory) as entries:
        found = list(entries)
    for each in found:
        if each.is_file(follow_symlinks=False):
            names.append(each.name)
        elif each.is_symlink() and each.name.endswith((LOG_SUFFIX, LOG_SUFFIX + SWAP_SUFFIX)):
            raise LogDamaged(f"{each.path} is a symbolic link, which is not followed: replace it by the file")
        elif each.name.endswith(_MADE_AGAIN):
            kept = set_aside(Path(each.path))
            _log.warning("%s is not a file: renamed to %s, rebuilding the file", each.path, kept)
    return names


def _infos(directory: Path, bases: list[int]) -> list[SegmentInfo]:
    return [SegmentInfo(base, segment_file(directory, base, LOG_SUFFIX).stat().st_size) for base in bases]


def _create_first(directory: Path, base_offset: int, shape: SegmentShape) -> LoadedFiles:
    segment = new_segment(directory, base_offset, shape, existing=False)
    segment.create()
    return LoadedFiles([], segment, base_offset, [], base_offset)


# ---- a replacement of a killed handler -------------------------------------------------------------------------


def _cut_to_published(directory: Path, bases: list[int], shape: SegmentShape, published: PublishedEnd) -> LoadedFiles:
    for base_offset in bases:
        if base_offset > published.segment_base:
            remove_segment_files(directory, base_offset)
    kept = [base_offset for base_offset in bases if base_offset < published.segment_base]
    if published.segment_base not in bases:
        if published.position:
            raise LogDamaged(f"{directory}: segment {published.segment_base} of the published end is missing")
        return _create_first(directory, published.segment_base, shape)._replace(rolled=_infos(directory, kept))
    return _cut_active(directory, _infos(directory, kept), shape, published)


def _cut_active(
    directory: Path, rolled: list[SegmentInfo], shape: SegmentShape, published: PublishedEnd
) -> LoadedFiles:
    segment = new_segment(directory, published.segment_base, shape)
    size = os.fstat(segment.fileno()).st_size
    if size < published.position:
        raise LogDamaged(f"{segment.path}: {size} bytes, but {published.position} were acknowledged")
    segment.cut(published.position, published.end_offset)
    epoch_starts = _note_from_last_index_entry(segment, published.position)
    return LoadedFiles(rolled, segment, published.end_offset, epoch_starts, published.end_offset)


def _note_from_last_index_entry(segment: LogSegment, end: int) -> list[tuple[int, int]]:
    """Note again the batches after the last index entry, so that timestamps and indexes continue unchanged."""
    last = segment.index.last()
    start = last[1] if last else 0
    segment.resume_at(start)
    epoch_starts: list[tuple[int, int]] = []
    for _, header in scan_headers(segment.fileno(), start, end):
        _note(segment, header, epoch_starts)
    if segment.staged_position != end:
        raise LogDamaged(f"{segment.path}: no batch at {segment.staged_position}, but {end} bytes were acknowledged")
    segment.position = end
    with suppress(OSError):
        # On a full disk: the entries stay staged, and searches that lack the last index entries scan a little more.
        segment.write_index_entries()
    return epoch_starts


def _note(segment: LogSegment, header: BatchHeader, epoch_starts: list[tuple[int, int]]) -> None:
    segment.note_batch(header.size_bytes, header.last_offset, header.max_timestamp)
    if not epoch_starts or epoch_starts[-1][0] < header.leader_epoch:
        epoch_starts.append((header.leader_epoch, header.base_offset))


# ---- a start of the broker ---------------------------------------------------------------------------------------


def _recover(directory: Path, bases: list[int], shape: SegmentShape, resume: Checkpointed) -> LoadedFiles:
    if not bases:
        report_lost(directory, resume.log_start_offset, resume.known_end)
        return _create_first(directory, resume.known_end, shape)
    if resume.is_exact:
        report_lost(directory, resume.log_start_offset, bases[0])
    epoch_starts: list[tuple[int, int]] = []
    unindexed: list[int] = []
    for number, base_offset in enumerate(bases):
        is_last = number == len(bases) - 1
        if not is_last and bases[number + 1] <= resume.recovery_point and _has_index(directory, base_offset):
            end_offset = _repair_indexes(new_segment(directory, base_offset, shape), bases[number + 1])
            unindexed += _lost_entries(directory, base_offset, bases[number + 1])
        else:
            segment = new_segment(directory, base_offset, shape)
            end_offset, whole = _recover_segment(segment, resume.recovery_point, epoch_starts, unindexed)
            if not whole:
                _log.warning("%s: truncated to offset %d at byte %d", segment.path, end_offset, segment.position)
                bases = _without_torn(directory, bases, number, resume.recovery_point)
                is_last = number == len(bases) - 1
            if is_last:
                break
            segment.become_inactive()
        if resume.is_gapless:
            report_lost(directory, end_offset, bases[number + 1])
    report_lost(directory, end_offset, resume.recovery_point)
    if end_offset < resume.log_start_offset:
        segment.close()
        return _create_at_known_end(directory, bases, end_offset, shape, resume)
    if resume.is_exact and end_offset < resume.recovery_point:
        segment.become_inactive()
        segment = new_segment(directory, resume.recovery_point, shape, existing=False)
        segment.create()
        bases, end_offset = [*bases, segment.base_offset], segment.base_offset
    return LoadedFiles(_infos(directory, bases[:-1]), segment, end_offset, epoch_starts, min([*unindexed, end_offset]))


def _without_torn(directory: Path, bases: list[int], cut: int, recovery_point: int) -> list[int]:
    """Remove the segments after one that was cut, and return the remaining base offsets.

    If the cut segment was durable, the later ones are kept: the damage does not extend to them.
    """
    later = bases[cut + 1 :]
    if later and later[0] <= recovery_point:
        return bases
    for base_offset in later:
        remove_segment_files(directory, base_offset)
    return bases[: cut + 1]


def _create_at_known_end(
    directory: Path, bases: list[int], end_offset: int, shape: SegmentShape, resume: Checkpointed
) -> LoadedFiles:
    for base_offset in bases:
        set_aside(segment_file(directory, base_offset, LOG_SUFFIX))
        remove_segment_files(directory, base_offset)
    report_set_aside(directory, end_offset, resume.log_start_offset, resume.known_end)
    return _create_first(directory, resume.known_end, shape)


def _repair_indexes(segment: LogSegment, next_base: int) -> int:
    """Check the indexes of a durable segment, rebuild damaged ones, and return the end offset of its records."""
    try:
        size_bytes = os.fstat(segment.fileno()).st_size
        if not size_bytes:
            return next_base
        repair_indexes(segment, size_bytes, next_base)
        last = segment.index.last()
        end_offset = segment.base_offset
        for _, header in scan_headers(segment.fileno(), last[1] if last else 0, size_bytes):
            end_offset = header.last_offset + 1
        return end_offset
    finally:
        segment.close()


def _has_index(directory: Path, base_offset: int) -> bool:
    return segment_file(directory, base_offset, INDEX_SUFFIX).exists()


def _lost_entries(directory: Path, base_offset: int, end_offset: int) -> list[int]:
    """Check the transaction index of a durable segment; return the offset from which it is damaged, if it is.

    Only damage to the file loses entries. A missing file is not damage.
    """
    if not segment_file(directory, base_offset, TXN_INDEX_SUFFIX).exists():
        return []
    index = TransactionIndex(directory, base_offset)
    try:
        entries = index.entries()
        last_offset = entries[-1].last_offset if entries else base_offset - 1
        # The file is created with its first entry.
        if entries and len(entries) == index.file.entries and last_offset < end_offset and index.file.is_whole():
            return []
        _log.warning("%s is damaged: rebuilding it from offset %d", index.file.path, last_offset + 1)
        return [min(last_offset + 1, end_offset)]
    finally:
        index.file.close()


def _recover_segment(
    segment: LogSegment, recovery_point: int, epoch_starts: list[tuple[int, int]], unindexed: list[int]
) -> tuple[int, bool]:
    """Cut a segment after its last whole batch and complete its indexes.

    Returns (offset after that batch, whether nothing had to be cut). Adds to `unindexed` the first abort marker that
    may lack a correct entry: completing that index needs producer state.
    """
    size = os.fstat(segment.fileno()).st_size
    start = _trusted_start(segment, recovery_point, size)
    next_offset = segment.base_offset
    first_offset = -1
    aborts = []
    for position, header in scan_verified(segment.fileno(), start, size):
        # The checksum does not cover the base offset: it must at least fit.
        if header.base_offset < next_offset or not segment.can_hold(header.last_offset):
            break
        _note(segment, header, epoch_starts)
        next_offset = header.last_offset + 1
        if first_offset < 0:
            first_offset = header.base_offset
        if header.is_control:
            marker = marker_at(segment.fileno(), position, header)
            if marker is not None and not marker.commit:
                aborts.append(header.base_offset)
    segment.transaction_index.repair(next_offset)
    entries = [entry.last_offset for entry in segment.transaction_index.entries() if entry.last_offset >= first_offset]
    # A marker that ended no transaction has no entry: finding that out again costs a scan. An entry that is not durable
    # may have any content.
    doubtful = set(entries).symmetric_difference(aborts).union(offset for offset in aborts if offset >= recovery_point)
    unindexed += sorted(doubtful)[:1]
    segment.position = segment.staged_position
    segment.write_index_entries()
    if segment.position != size:
        if next_offset < recovery_point:
            _keep_removed(segment, size)
        os.ftruncate(segment.fileno(), segment.position)
    return next_offset, segment.position == size


def _keep_removed(segment: LogSegment, size: int) -> None:
    """Copy the bytes after the last whole batch to another file: they were durable, and may hold further batches."""
    aside = unused_aside(segment.path)
    position = segment.position
    with aside.open("xb") as file:
        while position < size:
            position += os.sendfile(file.fileno(), segment.fileno(), position, size - position)
    _log.error("%s is damaged from byte %d on: the removed bytes are in %s", segment.path, segment.position, aside.name)


def _has_right_times(segment: LogSegment, size: int) -> bool:
    """Return whether the last entry of the time index matches the log: appends continue from it."""
    timestamp_ms, offset = segment.time_index.last()
    start = segment.index.lookup(offset)
    if timestamp_ms == NO_TIMESTAMP or has_largest(segment.fileno(), start, size, timestamp_ms, offset):
        return True
    _log.warning("%s is damaged: rebuilding it from the batches", segment.time_index.file.path)
    return False


def _trusted_start(segment: LogSegment, recovery_point: int, size: int) -> int:
    """Cut the indexes to their durable part that matches the log; return the position from which to verify batches."""
    segment.index.cut(recovery_point, size)
    segment.time_index.cut(recovery_point)
    last = segment.index.last()
    if last is not None:
        last_offset, position = last
        at_entry = next(scan_headers(segment.fileno(), position, size), None)
        if at_entry is not None and at_entry[1].last_offset == last_offset and _has_right_times(segment, size):
            segment.resume_at(position)
            return position
    segment.index.file.truncate(0)
    segment.time_index.cut(segment.base_offset)
    segment.resume_at(0)
    return 0
