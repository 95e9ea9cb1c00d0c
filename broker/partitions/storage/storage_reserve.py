"""The reserve: disk space for metadata changes, held by a file that is deleted when the disk is full.

Used by the controller, and by the supervisor before it starts. Deleting a topic frees its space only after the deletion
is on record, so that record must not fail on a full disk.
"""

from __future__ import annotations

import logging
import os
from pathlib import Path
from typing import Final

from rotunda.broker.log.disk_room import has_room

logger = logging.getLogger(__name__)

FILE_NAME: Final = "rotunda-reserve"
RESERVE_BYTES: Final = 2 * 1024 * 1024

#: More than a change of a few topics needs in the write-ahead log and in the file itself.
CHANGE_BYTES: Final = 256 * 1024


class StorageReserve:
    """The reserve of one data directory."""

    def __init__(self, data_dir: Path) -> None:
        self._data_dir = data_dir
        self._path = data_dir / FILE_NAME
        self._is_kept = False

    def keep(self) -> None:
        """Allocate the reserve, if there is space and it is not allocated yet."""
        if self._is_kept or not has_room(self._data_dir, 2 * RESERVE_BYTES):
            return
        try:
            fd = os.open(self._path, os.O_CREAT | os.O_WRONLY | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
            try:
                os.posix_fallocate(fd, 0, RESERVE_BYTES)
            finally:
                os.close(fd)
        except OSError as error:
            logger.warning("no disk reserve for metadata changes: %s", error)
            return
        self._is_kept = True

    def make_room(self) -> None:
        """Delete the reserve if a metadata change would otherwise not fit."""
        if has_room(self._data_dir, CHANGE_BYTES):
            return
        self._is_kept = False
        try:
            self._path.unlink()
        except OSError:
            return  # not allocated, or already deleted; the change itself fails if it needed the space
        logger.warning("the disk is full: released the reserve for metadata changes")
