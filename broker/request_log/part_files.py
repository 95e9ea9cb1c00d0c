"""The files of the request log: where they lie, what they are called, and which of them are too old.

Runs in the recorder; readers use the path functions. Knows nothing of what is in a file.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import NamedTuple

from rotunda.broker.request_log.columns import FORMAT_VERSION

DIRECTORY = "request-log"
SUFFIX = ".parquet"
HOUR_US = 3_600_000_000

#: How the names of files that are not finished begin and end: no pattern for the finished ones meets them.
HIDDEN = "."
UNFINISHED = ".unfinished"

#: How names of files begin that were compacted from others, and the file beside them that names the others.
COMPACTED = "compact-"
REPLACED = "_replaced.json"

#: Somebody who wants files to be finished soon touches this file now and then.
FOLLOWED = ".followed"
FOLLOWED_FOR_S = 10.0

#: There while a recorder runs: found at the start of a broker, the one before was killed.
RUNNING = ".running"


class Part(NamedTuple):
    """A finished file."""

    path: Path
    size_bytes: int
    mtime_s: float


def dataset_path(root: Path, dataset: str) -> Path:
    """Return the directory of a dataset's present format."""
    return root / dataset / f"v={FORMAT_VERSION}"


def hour_path(root: Path, dataset: str, hour: int) -> Path:
    """Return the directory of an hour, counted since the epoch."""
    time = datetime.fromtimestamp(hour * 3600, UTC)
    return dataset_path(root, dataset) / f"date={time:%Y-%m-%d}" / f"hour={time:%H}"


def finished(root: Path) -> Iterator[Part]:
    """Yield every finished file of every dataset and format."""
    for directory, below, names in os.walk(root):
        # Where compaction makes files that are not in their place yet.
        below[:] = [name for name in below if not name.startswith(HIDDEN)]
        for name in names:
            if name.endswith(SUFFIX) and not name.startswith(HIDDEN):
                path = Path(directory, name)
                with suppress(FileNotFoundError):
                    found = path.stat()
                    yield Part(path, found.st_size, found.st_mtime)


def remove_unfinished(root: Path) -> None:
    """Remove what a recorder that was killed had not finished. No other may run."""
    for directory, _, names in os.walk(root):
        for name in names:
            if name.startswith(HIDDEN) and name.endswith(UNFINISHED):
                Path(directory, name).unlink(missing_ok=True)


def apply_retention(root: Path, now_s: float, retention_ms: int, retention_bytes: int) -> int:
    """Remove the oldest files until none is too old and all together fit; -1 is no limit. Return how many went."""
    parts = sorted(finished(root), key=lambda part: (part.mtime_s, part.path))
    total_bytes = sum(part.size_bytes for part in parts)
    removed = 0
    for part in parts:
        is_old = retention_ms >= 0 and part.mtime_s < now_s - retention_ms / 1000
        if not is_old and not (0 <= retention_bytes < total_bytes):
            break
        part.path.unlink(missing_ok=True)
        total_bytes -= part.size_bytes
        removed += 1
        _remove_empty(part.path.parent, root)
    return removed


def is_followed(root: Path, now_s: float) -> bool:
    """Return whether somebody waits for files to be finished."""
    try:
        return now_s - (root / FOLLOWED).stat().st_mtime < FOLLOWED_FOR_S
    except FileNotFoundError:
        return False


def _remove_empty(directory: Path, root: Path) -> None:
    """Remove a directory and those above it as long as nothing but a note on what was compacted is in them."""
    while directory != root:
        try:
            if [path.name for path in directory.iterdir()] == [REPLACED]:
                (directory / REPLACED).unlink()
            directory.rmdir()
        except OSError:
            return
        directory = directory.parent
