"""The files of the request log: their paths, their names, and the deletion of old ones.

Runs in the recorder; readers use the path functions. Knows nothing of the files' content.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from rotunda.broker.request_log.columns import FORMAT_VERSION, HISTORY

if TYPE_CHECKING:
    from rotunda.shm.rings.recorder_rings import Retention

DIRECTORY = "request-log"
SUFFIX = ".parquet"
HOUR_US = 3_600_000_000

#: Prefix and suffixes of the names of unfinished and of damaged files: no pattern for finished ones matches them.
HIDDEN = "."
UNFINISHED = ".unfinished"
DAMAGED = ".damaged"

#: Prefix of compacted files' names, and the file with the list of files they replace.
COMPACTED = "compact-"
REPLACED = "_replaced.json"

#: Ends of the paths of finished files, as recorder, history and compaction name them, and of damaged ones.
_HOUR = r"/v=\d+/date=\d{4}-\d\d-\d\d/hour=\d\d/"
_FINISHED = re.compile(_HOUR + r"(part-[\w.-]+-\d+|minutes-[0-9a-f]{8}|compact-[\w.-]+-\d+)\.parquet$")
_DAMAGED = re.compile(_HOUR + r"\.minutes-[0-9a-f]{8}\.parquet\.damaged$")

#: A reader that needs files to be finished soon touches this file now and then.
FOLLOWED = ".followed"
FOLLOWED_FOR_S = 10.0

#: Exists while a recorder runs: if a starting broker finds it, the one before was killed.
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
    """Yield every finished file of every dataset and format, and no file of another name."""
    return _named(root, _FINISHED)


def _named(root: Path, *patterns: re.Pattern[str]) -> Iterator[Part]:
    for directory, below, names in os.walk(root):
        # Directory of unfinished compactions.
        below[:] = [name for name in below if not name.startswith(HIDDEN)]
        for name in names:
            path = Path(directory, name)
            if any(pattern.search(path.as_posix()) for pattern in patterns):
                with suppress(FileNotFoundError):
                    found = path.stat()
                    yield Part(path, found.st_size, found.st_mtime)


def remove_unfinished(root: Path) -> None:
    """Delete the unfinished files of a killed recorder. No other may run."""
    for directory, _, names in os.walk(root):
        for name in names:
            if name.startswith(HIDDEN) and name.endswith(UNFINISHED):
                Path(directory, name).unlink(missing_ok=True)


def apply_retention(root: Path, now_s: float, retention: Retention) -> int:
    """Delete the oldest files until age and total size are within the limits. Return their number."""
    history = root / HISTORY
    found = sorted(_named(root, _FINISHED, _DAMAGED), key=lambda part: (part.mtime_s, part.path))
    aggregates = [part for part in found if part.path.is_relative_to(history)]
    rows = [part for part in found if not part.path.is_relative_to(history)]
    removed = _remove_oldest(aggregates, root, now_s, retention.history_age_ms, -1)
    return removed + _remove_oldest(rows, root, now_s, retention.age_ms, retention.size_bytes)


def _remove_oldest(parts: list[Part], root: Path, now_s: float, age_ms: int, size_bytes: int) -> int:
    """Delete the first of these files until age and total size are within the limits; -1 is no limit."""
    total_bytes = sum(part.size_bytes for part in parts)
    removed = 0
    for part in parts:
        is_old = age_ms >= 0 and part.mtime_s < now_s - age_ms / 1000
        if not is_old and not (0 <= size_bytes < total_bytes):
            break
        part.path.unlink(missing_ok=True)
        total_bytes -= part.size_bytes
        removed += 1
        _remove_empty(part.path.parent, root)
    return removed


def is_followed(root: Path, now_s: float) -> bool:
    """Return whether a reader waits for files to be finished."""
    try:
        return now_s - (root / FOLLOWED).stat().st_mtime < FOLLOWED_FOR_S
    except FileNotFoundError:
        return False


def _remove_empty(directory: Path, root: Path) -> None:
    """Delete a directory and its parents while they are empty or contain only a list of replaced files."""
    while directory != root:
        try:
            if [path.name for path in directory.iterdir()] == [REPLACED]:
                (directory / REPLACED).unlink()
            directory.rmdir()
        except OSError:
            return
        directory = directory.parent
