"""Compaction of one hour of a dataset: replaces many small files by few sorted ones, atomically for readers.

The new files are written into a separate directory, which is then exchanged with the one of the hour (renameat2,
RENAME_EXCHANGE). A directory listing has the old files or the new ones, never both. A reader with an old listing gets
missing files and lists the directory again, as it must after retention too. Files that the recorder adds meanwhile are
linked or moved over. The new directory has a list of the files it replaces, so that stored hours remain valid for them.
"""

from __future__ import annotations

import ctypes
import json
import os
import shutil
import sys
from collections.abc import Callable, Iterable
from pathlib import Path

from rotunda.spark.failures import JobFailed
from rotunda.spark.log.request_log import COMPACTED, REPLACED, Part

#: Directory below the log, hidden from readers, for new files: one subdirectory for each hour in progress.
ASIDE = ".compacting"
_SUFFIX = ".parquet"
_AT_FDCWD = -100
_RENAME_EXCHANGE = 2


def check_exchange(directory: Path) -> None:
    """Raise JobFailed unless the file system can exchange two directories below this one."""
    one, other = directory / "one", directory / "other"
    for path in (one, other):
        path.mkdir(parents=True, exist_ok=True)
    try:
        _exchange(one, other)
    except OSError as error:
        message = f"the file system of {directory.parent} cannot exchange directories ({error.strerror})"
        raise JobFailed(f"{message}; compact needs Linux and a local one such as ext4, XFS, Btrfs or tmpfs") from error
    finally:
        one.rmdir()
        other.rmdir()


class HourCompaction:
    """One hour's directory, its files as listed, and the separate directory for their replacements."""

    def __init__(self, directory: Path, aside: Path, files: dict[str, frozenset[Part]]) -> None:
        """Prepare; `files` are the names to replace, with the recorder's files that each contains."""
        self._directory = directory
        self._aside = aside
        self._files = files

    def replace(self, written: Iterable[Path]) -> int:
        """Replace the old files by files with the same rows; return the number of new files.

        Raises FileNotFoundError, with nothing changed, when retention has deleted one of the old files meanwhile.
        """
        newest_ns = max((self._directory / name).stat().st_mtime_ns for name in self._files)
        self._aside.mkdir(parents=True)
        names = []
        for number, path in enumerate(sorted(written)):
            names.append(f"{COMPACTED}{self._aside.name}-{number}{_SUFFIX}")
            path.rename(self._aside / names[-1])
            # Retention uses the time at which a file was finished.
            os.utime(self._aside / names[-1], ns=(newest_ns, newest_ns))
            _sync(self._aside / names[-1])
        parts = sorted(set().union(*self._files.values()))
        note = self._aside / REPLACED
        note.write_text(json.dumps({"made": self._aside.name, "files": names, "parts": parts}))
        _sync(note)
        _bring(self._directory, self._aside, self._files, os.link)
        _exchange(self._aside, self._directory)
        _finish(self._directory, self._aside, self._files)
        return len(names)


def recover(root: Path) -> None:
    """Finish or undo compactions that were killed."""
    for aside in sorted((root / ASIDE).glob("*/v=*/date=*/hour=*/*")):
        directory = root / aside.parent.relative_to(root / ASIDE)
        note = directory / REPLACED
        said = json.loads(note.read_text()) if note.exists() else {}
        if said.get("made") == aside.name:
            _finish(directory, aside, {*(part[0] for part in said["parts"]), *_older(aside)})
        else:
            shutil.rmtree(aside)
    shutil.rmtree(root / ASIDE, ignore_errors=True)


def _older(aside: Path) -> set[str]:
    """Return the names of compacted files that were themselves replaced."""
    return {path.name for path in aside.iterdir() if path.name.startswith(COMPACTED)}


def _finish(directory: Path, aside: Path, replaced: Iterable[str]) -> None:
    """Move over files added to the old directory during the exchange; remove the others."""
    _bring(aside, directory, replaced, os.rename)
    _sync(directory.parent)
    shutil.rmtree(aside)


def _bring(source: Path, target: Path, except_for: Iterable[str], how: Callable[[Path, Path], object]) -> None:
    for name in {path.name for path in source.iterdir()} - {*except_for, REPLACED}:
        if not (target / name).exists():
            how(source / name, target / name)


def _exchange(one: Path, other: Path) -> None:
    if not sys.platform.startswith("linux"):
        raise OSError(0, "not Linux")
    libc = ctypes.CDLL(None, use_errno=True)
    names = (os.fsencode(one), os.fsencode(other))
    if libc.renameat2(_AT_FDCWD, names[0], _AT_FDCWD, names[1], _RENAME_EXCHANGE):
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))


def _sync(path: Path) -> None:
    file = os.open(path, os.O_RDONLY)
    try:
        os.fsync(file)
    finally:
        os.close(file)
