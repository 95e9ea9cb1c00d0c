"""The files of the history: one for each hour, written again with each minute.

Runs in the recorder; readers use `undamaged` and set damaged files aside. A file has its checksum in its name. The next
version of an hour is written beside it before it is deleted: a killed recorder loses no earlier minute, and the newest
file of an hour has all of its rows. A new recorder continues the file of its predecessor.
"""

from __future__ import annotations

import logging
import zlib
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from rotunda.broker.request_log.columns import DATASETS, HISTORY
from rotunda.broker.request_log.part_files import DAMAGED, HIDDEN, HOUR_US, SUFFIX, dataset_path, hour_path

if TYPE_CHECKING:
    from pathlib import Path

    from arro3.core import RecordBatch

logger = logging.getLogger(__name__)

_PREFIX = "minutes-"

#: Most hours in memory: the present one, and earlier ones that cannot be written.
MOST_HOURS = 3

_DATASET = DATASETS[HISTORY]
_NAMES = [column.name for column in _DATASET.columns]
_NOTHING = {column.name: None for column in _DATASET.columns if column.nullable}


class Damaged(Exception):  # noqa: N818  named for what is the case
    """A file does not have the content that it was written with. The Parquet reader could crash on it."""


def newest(directory: Path) -> Path | None:
    """Return the file of an hour's directory. A recorder that was killed may have left an earlier version too."""
    found = [(path.stat().st_mtime_ns, path) for path in directory.glob(f"{_PREFIX}*{SUFFIX}")]
    return max(found)[1] if found else None


def remove_earlier(root: Path) -> None:
    """Delete earlier versions of hours, which a killed recorder has left. No other may run."""
    for directory in dataset_path(root, HISTORY).glob("date=*/hour=*"):
        # An hour with anything else of the name stays as it is.
        with suppress(OSError):
            last = newest(directory)
            for path in directory.glob(f"{_PREFIX}*{SUFFIX}"):
                if path != last:
                    path.unlink()


def undamaged(path: Path) -> bytes:
    """Return the content of a file. Raises Damaged, FileNotFoundError when it was replaced, or OSError."""
    content = path.read_bytes()
    if path.name != _name(content):
        raise Damaged(f"{path}: the content does not have the checksum of the name")
    return content


def set_aside(path: Path, error: Damaged) -> None:
    """Rename a damaged file, so that it is read no more, and log it. Raises OSError."""
    aside = path.with_name(f"{HIDDEN}{path.name}{DAMAGED}")
    path.rename(aside)
    logger.error("damaged history set aside as %s: %s", aside.name, error)


def has_damage(directory: Path) -> bool:
    """Return whether a file of an hour's directory was set aside."""
    return any(directory.glob(f"{HIDDEN}{_PREFIX}*{DAMAGED}"))


def _name(content: bytes | memoryview) -> str:
    return f"{_PREFIX}{zlib.crc32(content):08x}{SUFFIX}"


class _Hour:
    """The rows of an hour."""

    def __init__(self, root: Path, hour: int) -> None:
        self._root = root
        self.directory = hour_path(root, HISTORY, hour)
        self._batches: list[RecordBatch] = []
        self._is_loaded = False
        self.is_saved = True

    def add(self, rows: list[dict[str, Any]]) -> None:
        """Add rows."""
        # An unused broker loads neither numpy nor Arrow.
        from rotunda.broker.request_log.row_values import plain_values  # noqa: PLC0415
        from rotunda.broker.request_log.tables import batch_of  # noqa: PLC0415

        self._batches.append(batch_of(_DATASET, plain_values(rows, _NAMES)))
        self.is_saved = False

    def write(self) -> None:
        """Write all rows, and delete the earlier version. Rows that cannot be written stay unsaved."""
        from rotunda.broker.request_log.tables import encoded, publish  # noqa: PLC0415

        try:
            if not self._is_loaded:
                self._batches = [*self._earlier(), *self._batches]
                self._is_loaded = True
            content = encoded(_DATASET, self._batches)
            name = _name(content)
            # Never make the data directory itself: a removed one must not be replaced.
            self._root.mkdir(exist_ok=True)
            publish(self.directory, name, content)
        except OSError as error:
            # The controller reports a full disk, once.
            logger.debug("cannot write the history of %s: %s", self.directory, error)
            return
        self.is_saved = True
        for path in self.directory.glob(f"{_PREFIX}*{SUFFIX}"):
            if path.name != name:
                path.unlink(missing_ok=True)

    def _earlier(self) -> list[RecordBatch]:
        """Return the rows of the present file. A damaged one is set aside. Raises OSError."""
        from rotunda.broker.request_log.tables import decoded  # noqa: PLC0415

        path = newest(self.directory)
        if path is None:
            return []
        try:
            return decoded(_DATASET, undamaged(path))
        except Damaged as error:
            set_aside(path, error)
            return []


class HourFiles:
    """The present hour, and hours with rows that are not in their file yet."""

    def __init__(self, root: Path) -> None:
        self._root = root
        self._rows: list[dict[str, Any]] = []
        self._hours: dict[int, _Hour] = {}

    @property
    def is_saved(self) -> bool:
        """Whether every row is in its file."""
        return not self._rows and all(each.is_saved for each in self._hours.values())

    def add(self, row: dict[str, Any]) -> None:
        """Add a row; missing columns are null."""
        self._rows.append(_NOTHING | row)

    def save(self) -> None:
        """Write the files of all hours with new rows. Rows of a file that cannot be written wait for the next call."""
        by_hour: dict[int, list[dict[str, Any]]] = {}
        for row in self._rows:
            by_hour.setdefault(row["time"] // HOUR_US, []).append(row)
        self._rows = []
        for hour, rows in by_hour.items():
            if hour not in self._hours:
                self._hours[hour] = _Hour(self._root, hour)
            self._hours[hour].add(rows)
        for each in self._hours.values():
            if not each.is_saved:
                each.write()
        self._forget()

    def _forget(self) -> None:
        """Drop written hours but the last, and the oldest of too many that cannot be written."""
        *earlier, _ = sorted(self._hours) or [0]
        for hour in earlier:
            each = self._hours[hour]
            if each.is_saved or len(self._hours) > MOST_HOURS:
                if not each.is_saved:
                    logger.error("dropped rows of the history of %s: they could not be written", each.directory)
                del self._hours[hour]
