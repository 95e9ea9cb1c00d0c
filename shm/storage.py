"""The state of the disk under the data directory, as it is published: what it means, and the sentences about it. Pure.

The controller looks at the disk and publishes the state; a handler whose write found no room publishes it in its slot.
Both are read by everybody: handlers refuse records by it, the status page, /readyz and /metrics show it.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Mapping
from enum import IntEnum
from typing import NamedTuple

_UNITS = ("B", "KiB", "MiB", "GiB", "TiB")


class StorageState(IntEnum):
    """What is left, from plenty to nothing; each state includes what those before it entail."""

    #: There is room.
    ROOM = 0
    #: A warning is due.
    LOW = 1
    #: The request log has stopped.
    NO_REQUEST_LOG = 2
    #: Records are refused.
    FULL = 3
    #: The data directory itself is not there any more: nothing is written.
    GONE = 4


class StorageReading(NamedTuple):
    """A reading. `errors` has, by handler, the error numbers of those whose last write found no room."""

    state: StorageState
    free_bytes: int
    errors: Mapping[int, int]

    @property
    def refusal(self) -> str:
        """Why records are refused, in a sentence; empty if they are not."""
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
        """What is about to happen for want of room, in a sentence; empty while there is room, or when it has."""
        if self.refusal or self.state == StorageState.ROOM:
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
