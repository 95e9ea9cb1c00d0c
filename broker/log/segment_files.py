"""Names of the files of a partition directory. Pure; used by the owner and by readers.

A segment is named by its base offset in 20 digits: `.log` holds batches, `.index` and `.timeindex` find positions in
it, `.snapshot` holds producer state as of that offset.
"""

import os
import shutil
import uuid
from pathlib import Path

LOG_SUFFIX = ".log"
INDEX_SUFFIX = ".index"
TIME_INDEX_SUFFIX = ".timeindex"
TXN_INDEX_SUFFIX = ".txnindex"
SNAPSHOT_SUFFIX = ".snapshot"

#: What belongs to one segment and goes when it goes.
SEGMENT_SUFFIXES = (LOG_SUFFIX, INDEX_SUFFIX, TIME_INDEX_SUFFIX, TXN_INDEX_SUFFIX)

#: Left over from a step that was cut short: never part of the log.
LEFTOVER_SUFFIXES = (".tmp", ".deleted", ".cleaned", ".swap")

#: Ends the name of a partition directory that is being removed.
DELETE_SUFFIX = "-delete"

OFFSET_DIGITS = 20


def segment_file(directory: Path, base_offset: int, suffix: str) -> Path:
    """Return the path of one file of the segment that starts at `base_offset`."""
    return directory / f"{base_offset:0{OFFSET_DIGITS}d}{suffix}"


def offsets_of(directory: Path, suffix: str) -> list[int]:
    """Return the offsets, ascending, that files with `suffix` in `directory` are named by.

    Raises FileNotFoundError when the directory is gone.
    """
    found = []
    for name in os.listdir(directory):
        stem = name.removesuffix(suffix)
        if stem != name and len(stem) == OFFSET_DIGITS and stem.isdecimal():
            found.append(int(stem))
    return sorted(found)


def remove_segment_files(directory: Path, base_offset: int) -> None:
    """Remove every file of one segment, the log file first: without it the others are known to be leftovers."""
    for suffix in SEGMENT_SUFFIXES:
        remove_if_there(segment_file(directory, base_offset, suffix))


def remove_if_there(path: Path) -> None:
    """Remove a file; that it is not there is fine."""
    try:
        path.unlink()
    except FileNotFoundError:
        return


def sync_directory(directory: Path) -> None:
    """Make the names of the files in `directory` durable."""
    fd = os.open(directory, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


def remove_directory(directory: Path) -> None:
    """Remove a partition directory by way of a name that is never taken for a partition's, should it be cut short."""
    suffix = f".{uuid.uuid4().hex}{DELETE_SUFFIX}"
    doomed = directory.with_name(directory.name[: 255 - len(suffix)] + suffix)
    directory.rename(doomed)
    shutil.rmtree(doomed)
