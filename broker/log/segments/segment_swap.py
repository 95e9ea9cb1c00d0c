"""The swap of segments: a compacted one replaces its source segments. Runs in the owner of the partition.

The cleaner leaves whole files `X.log.cleaned`, `X.index.cleaned` and so on, X being the first of the source segments.
The owner then, in Kafka's steps and with Kafka's names:

1. renames them to `.swap`, the log file last: with `X.log.swap` the swap is decided, and the next open of the log
   completes it;
2. removes X's offset index, replaces X's log file atomically with the new one, then adds the new indexes;
3. renames the files of the other segments to `.deleted`, and removes `X.log.swap`.

At every moment there is a file `X.log`, old or new. A reader opens it first and an index after it. The new offset index
is added only after the new log file, and the old one is removed before, so a reader never looks up positions of the old
file in the new one. In the opposite case, an old file with the new index, the reader detects before closing the file
that the name has another inode (`log_reader`).
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
    """The range of segments to replace, and the cleaned one, which has the name of the first of them."""

    first_base: int
    last_base: int
    segments: int
    old_bytes: int
    new_bytes: int

    def pack(self) -> bytes:
        """Return the message from the cleaner to the owner."""
        return _SWAP.pack(*self)

    @classmethod
    def unpack(cls, data: bytes) -> Self:
        """Return the arguments of `pack`. Raises struct.error."""
        return cls._make(_SWAP.unpack(data))


def is_prepared(directory: Path, swap: SegmentSwap) -> bool:
    """Return whether the cleaner's files exist, with the announced size."""
    try:
        sizes = [_temporary(directory, swap.first_base, suffix, CLEANED_SUFFIX).stat().st_size for suffix in _IN_ORDER]
    except FileNotFoundError:
        return False
    return sizes[-1] == swap.new_bytes


def commit_swap(directory: Path, bases: Sequence[int]) -> None:
    """Replace the segments at `bases`, oldest first, with the cleaned files. Raises OSError.

    If it is interrupted after its first steps, `complete_swaps` does the rest.
    """
    for suffix in _IN_ORDER:
        cleaned = _temporary(directory, bases[0], suffix, CLEANED_SUFFIX)
        cleaned.replace(_temporary(directory, bases[0], suffix, SWAP_SUFFIX))
    _finish(directory, bases[0], bases[1:])


def complete_swaps(directory: Path) -> bool:
    """Complete the decided swaps and undo the others; return whether any was decided. Raises OSError."""
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
    """Return whether a swap file is dropped, as in Kafka: a cleaned file with this or a smaller base offset exists.

    The segment must still have its log and index: a swap that has replaced the log file is completed.
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
        # With a second name: the first one marks the swap as decided, until it is complete.
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
    """Hard-link the file that is about to be replaced to a name under which `segment_file_cache` finds it."""
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
