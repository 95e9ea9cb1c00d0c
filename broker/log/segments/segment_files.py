"""Names of the files of a partition directory, and small operations on them. Used by the owner and by readers.

A segment is named by its base offset in 20 digits: `.log` holds batches, `.index` and `.timeindex` find positions in
it, `.snapshot` holds producer state as of that offset. A further suffix marks a file that is being added (`.cleaned`,
`.swap`) or removed (`.deleted`).
"""

import os
import shutil
import uuid
from collections.abc import Iterable
from functools import partial
from pathlib import Path

LOG_SUFFIX = ".log"
INDEX_SUFFIX = ".index"
TIME_INDEX_SUFFIX = ".timeindex"
TXN_INDEX_SUFFIX = ".txnindex"
SNAPSHOT_SUFFIX = ".snapshot"

#: The files of one segment, which are removed with it.
SEGMENT_SUFFIXES = (LOG_SUFFIX, INDEX_SUFFIX, TIME_INDEX_SUFFIX, TXN_INDEX_SUFFIX)

#: A file that the cleaner is writing, and one whose swap is decided.
CLEANED_SUFFIX = ".cleaned"
SWAP_SUFFIX = ".swap"

#: A file that is no longer part of the log and is deleted after a delay, so that readers can finish.
DELETED_SUFFIX = ".deleted"

#: Leftovers of interrupted operations: never part of the log.
LEFTOVER_SUFFIXES = (".tmp", CLEANED_SUFFIX)

#: Suffix of a partition directory that is being deleted.
DELETE_SUFFIX = "-delete"
_LONGEST_NAME = 255
_UUID_DIGITS = 32

OFFSET_DIGITS = 20

#: Bytes of a file that are read at a time.
_CHUNK_BYTES = 1 << 16


def segment_file(directory: Path, base_offset: int, suffix: str) -> Path:
    """Return the path of one file of the segment that starts at `base_offset`."""
    return directory / f"{base_offset:0{OFFSET_DIGITS}d}{suffix}"


def offsets_of(directory: Path, suffix: str) -> list[int]:
    """Return the offsets, ascending, in the names of files with `suffix` in `directory`.

    A file that is renamed during a listing may be missing from it, so the directory is listed until two listings agree.
    Raises FileNotFoundError when the directory was deleted.
    """
    before, found = None, _offsets_of(directory, suffix)
    while found != before:
        before, found = found, _offsets_of(directory, suffix)
    return found


def _offsets_of(directory: Path, suffix: str) -> list[int]:
    return offsets_in(os.listdir(directory), suffix)


def offsets_in(names: Iterable[str], suffix: str) -> list[int]:
    """Return the offsets, ascending, of the file names that end with `suffix`."""
    found = []
    for name in names:
        stem = name.removesuffix(suffix)
        if stem != name and len(stem) == OFFSET_DIGITS and stem.isdecimal():
            found.append(int(stem))
    return sorted(found)


def remove_segment_files(directory: Path, base_offset: int) -> None:
    """Remove every file of one segment, the log file first: without it the others are recognised as leftovers."""
    for suffix in SEGMENT_SUFFIXES:
        remove_if_there(segment_file(directory, base_offset, suffix))


def doom_segment_files(directory: Path, base_offset: int) -> None:
    """Mark every file of one segment as deleted, the log file first; the cleaner removes them after a delay."""
    for suffix in SEGMENT_SUFFIXES:
        path = segment_file(directory, base_offset, suffix)
        rename_if_there(path, path.with_name(path.name + DELETED_SUFFIX))


def read_file(path: Path) -> bytes:
    """Return the content of a file of the data directory; a symbolic link in its place is not followed.

    Raises OSError.
    """
    fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW)
    try:
        return b"".join(iter(partial(os.read, fd, _CHUNK_BYTES), b""))
    finally:
        os.close(fd)


def rename_if_there(path: Path, to: Path) -> None:
    """Rename a file, replacing an existing one; a missing file is no error."""
    try:
        path.replace(to)
    except FileNotFoundError:
        return


def remove_if_there(path: Path) -> None:
    """Remove a file; a missing file is no error."""
    try:
        path.unlink()
    except FileNotFoundError:
        return


def sync_directory(directory: Path) -> None:
    """Make the directory entries in `directory` durable."""
    fd = os.open(directory, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


def remove_directory(directory: Path) -> None:
    """Delete a partition directory; it is renamed first, so that a partly deleted one is never used as a partition."""
    doomed = directory.with_name(f"{doomed_name(directory)}.{uuid.uuid4().hex}{DELETE_SUFFIX}")
    directory.rename(doomed)
    shutil.rmtree(doomed)


def doomed_directories(data_dir: Path) -> dict[str, list[Path]]:
    """Return the directories whose deletion was interrupted, or is running, by `doomed_name`."""
    found: dict[str, list[Path]] = {}
    with os.scandir(data_dir) as entries:
        for entry in entries:
            if entry.name.endswith(DELETE_SUFFIX) and entry.is_dir():
                found.setdefault(entry.name.rpartition(".")[0], []).append(Path(entry.path))
    return found


def doomed_name(directory: Path) -> str:
    """Return the beginning of the name that a directory has while it is deleted."""
    return directory.name[: _LONGEST_NAME - 1 - _UUID_DIGITS - len(DELETE_SUFFIX)]
