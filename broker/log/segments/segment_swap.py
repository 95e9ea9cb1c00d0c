"""The swap of segments: a compacted one takes the place of those it was made of. Runs in the owner of the partition.

The cleaner leaves whole files `X.log.cleaned`, `X.index.cleaned` and so on, X being the first of the segments that are
to go. The owner then, in Kafka's steps and with Kafka's names:

1. renames them to `.swap`, the log file last: with `X.log.swap` the swap is decided, and whoever opens the log next
   brings it to its end;
2. moves X's offset index away, puts the new log file in X's place in one step, then its indexes;
3. renames the files of the other segments to `.deleted`, and takes `X.log.swap` away.

At every moment there is a file `X.log`, old or new. A reader opens it first and an index after it; that the new offset
index comes only after the new log file, and the old one goes before, keeps it from looking up positions of the old file
in the new one. In the other order it finds on closing that the name has another inode (`log_reader`).
"""

import logging
import os
import struct
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple, Self

from rotunda.broker.log.segments.segment_files import (
    CLEANED_SUFFIX,
    DELETED_SUFFIX,
    INDEX_SUFFIX,
    LOG_SUFFIX,
    SEGMENT_SUFFIXES,
    SWAP_SUFFIX,
    doom_segment_files,
    offsets_of,
    remove_if_there,
    rename_if_there,
    segment_file,
)
from rotunda.broker.log.segments.segment_scan import scan_headers

_SWAP = struct.Struct(
    ">q"  # first base offset
    "q"  # last base offset
    "q"  # number of segments
    "q"  # their bytes
    "q"  # bytes of the cleaned log file
)

_log = logging.getLogger(__name__)


class SegmentSwap(NamedTuple):
    """Which segments give way to the cleaned one that has the name of the first of them."""

    first_base: int
    last_base: int
    segments: int
    old_bytes: int
    new_bytes: int

    def pack(self) -> bytes:
        """Return the bytes that travel from the cleaner to the owner."""
        return _SWAP.pack(*self)

    @classmethod
    def unpack(cls, data: bytes) -> Self:
        """Return the arguments of `pack`. Raises struct.error."""
        return cls._make(_SWAP.unpack(data))


def is_prepared(directory: Path, swap: SegmentSwap) -> bool:
    """Whether the cleaner's files are there and of the size that it said."""
    try:
        sizes = [_temporary(directory, swap.first_base, suffix, CLEANED_SUFFIX).stat().st_size for suffix in _IN_ORDER]
    except FileNotFoundError:
        return False
    return sizes[-1] == swap.new_bytes


def commit_swap(directory: Path, bases: Sequence[int]) -> None:
    """Put the cleaned files in the place of the segments at `bases`, oldest first. Raises OSError.

    If it is cut short after its first steps, `complete_swaps` does the rest.
    """
    for suffix in _IN_ORDER:
        cleaned = _temporary(directory, bases[0], suffix, CLEANED_SUFFIX)
        cleaned.replace(_temporary(directory, bases[0], suffix, SWAP_SUFFIX))
    _finish(directory, bases[0], bases[1:])


def complete_swaps(directory: Path) -> bool:
    """Bring to an end what was decided, and undo what was not; return whether anything was. Raises OSError."""
    decided = [base for base in offsets_of(directory, LOG_SUFFIX + SWAP_SUFFIX) if not _is_undecided(directory, base)]
    for base_offset in decided:
        end_offset = _end_offset(_temporary(directory, base_offset, LOG_SUFFIX, SWAP_SUFFIX), base_offset)
        replaced = [base for base in offsets_of(directory, LOG_SUFFIX) if base_offset < base < end_offset]
        _log.info("%s: completing the swap of segment %d, in place of %s", directory, base_offset, replaced)
        _finish(directory, base_offset, replaced)
    for name in os.listdir(directory):
        if name.endswith(SWAP_SUFFIX):
            remove_if_there(directory / name)
    return bool(decided)


def _is_undecided(directory: Path, base_offset: int) -> bool:
    """Whether a swap file is dropped, as in Kafka: a cleaned file of the same base offset or a smaller one is there.

    The segment must stand, with its index: what this module has begun to replace is completed.
    """
    cleaned = [offsets_of(directory, suffix + CLEANED_SUFFIX)[:1] for suffix in SEGMENT_SUFFIXES]
    if not any(first <= [base_offset] for first in cleaned if first):
        return False
    log, index = (segment_file(directory, base_offset, suffix) for suffix in (LOG_SUFFIX, INDEX_SUFFIX))
    swap = _temporary(directory, base_offset, LOG_SUFFIX, SWAP_SUFFIX)
    if not (log.exists() and index.exists()) or log.samefile(swap):
        return False
    _log.warning("deleting %s: another file of the same compaction is incomplete; keeping %s", swap, log.name)
    return True


#: The log file last.
_IN_ORDER = tuple(reversed(SEGMENT_SUFFIXES))


def _temporary(directory: Path, base_offset: int, suffix: str, stage: str) -> Path:
    return segment_file(directory, base_offset, suffix + stage)


def _finish(directory: Path, base_offset: int, others: Sequence[int]) -> None:
    log = segment_file(directory, base_offset, LOG_SUFFIX)
    decided = _temporary(directory, base_offset, LOG_SUFFIX, SWAP_SUFFIX)
    if not (log.exists() and log.samefile(decided)):
        remove_if_there(segment_file(directory, base_offset, INDEX_SUFFIX))
        _keep_for_readers(log)
        # By way of a second name: the first one says that the swap is decided, until all is done.
        second = log.with_name(log.name + ".tmp")
        remove_if_there(second)
        second.hardlink_to(decided)
        second.replace(log)
    for suffix in SEGMENT_SUFFIXES[1:]:
        rename_if_there(
            _temporary(directory, base_offset, suffix, SWAP_SUFFIX), segment_file(directory, base_offset, suffix)
        )
    for other in others:
        doom_segment_files(directory, other)
    remove_if_there(decided)


def _keep_for_readers(log: Path) -> None:
    """Give the file that is about to be replaced a name under which `segment_file_cache` finds it."""
    try:
        doomed = log.with_name(f"{log.name}.{log.stat().st_ino}{DELETED_SUFFIX}")
        doomed.hardlink_to(log)
    except (FileExistsError, FileNotFoundError):
        return


def _end_offset(path: Path, base_offset: int) -> int:
    """Return the offset after the last batch of a log file."""
    end_offset = base_offset
    fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW)
    try:
        for _, header in scan_headers(fd, 0, os.fstat(fd).st_size):
            end_offset = header.last_offset + 1
    finally:
        os.close(fd)
    return end_offset
