"""The published state of the disk under the data directory: its meaning, and the sentences about it. Pure.

The controller checks the disk and publishes the state; a handler whose write failed for lack of space publishes it in
its slot. Every process reads both: handlers reject records by it, the status page, /readyz and /metrics show it.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Mapping
from enum import IntEnum
from typing import NamedTuple

_UNITS = ("B", "KiB", "MiB", "GiB", "TiB")


class StorageState(IntEnum):
    """The remaining space, from plenty to nothing; each state includes the effects of those before it."""

    #: There is enough space.
    ROOM = 0
    #: A warning is due.
    LOW = 1
    #: The request log has stopped.
    NO_REQUEST_LOG = 2
    #: Records are rejected.
    FULL = 3
    #: The data directory itself has been removed: nothing is written.
    GONE = 4


class StorageReading(NamedTuple):
    """A reading. `errors` has, by handler, the error numbers of last writes that failed for lack of space."""

    state: StorageState
    free_bytes: int
    errors: Mapping[int, int]

    @property
    def rejection(self) -> str:
        """Return why records are rejected, as a sentence; empty if they are not."""
        if self.state == StorageState.GONE:
            return (
                "The data directory has been removed or replaced while the broker runs: nothing is written. "
                "Put it back in its place, or stop the broker and restore it."
            )
        for error in self.errors.values():
            if error in {errno.EMFILE, errno.ENFILE}:
                return (
                    f"There are no descriptors left ({os.strerror(error)}): records are refused until there are. "
                    "Raise the limit of open files (ulimit -n, LimitNOFILE in systemd)."
                )
            return f"The data directory cannot be written to ({os.strerror(error)}): records are refused until it can."
        if self.state == StorageState.FULL:
            return (
                f"The disk of the data directory is full ({described(self.free_bytes)} free, see "
                "storage.free.min.bytes): records are refused until there is room."
            )
        return ""

    @property
    def warning(self) -> str:
        """Return the effects of low space, as a sentence; empty with enough space, or when records are rejected."""
        if self.rejection or self.state == StorageState.ROOM:
            return ""
        stopped = " The request log has stopped." if self.state == StorageState.NO_REQUEST_LOG else ""
        return f"The disk of the data directory is nearly full: {described(self.free_bytes)} free.{stopped}"


def described(size_bytes: int) -> str:
    """Return a size in the largest unit of which there is at least one."""
    size = float(size_bytes)
    for unit in _UNITS:
        if size < 1024 or unit == _UNITS[-1]:
            return f"{size:.3g} {unit}" if size < 1000 else f"{size:.0f} {unit}"
        size /= 1024
    raise AssertionError(size_bytes)
