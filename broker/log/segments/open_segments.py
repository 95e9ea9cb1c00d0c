"""The segments of this process with open files, limited by the process's descriptors.

Runs in handlers. A partition with appends has the files of one segment open, and a handler may own more partitions than
its limit of open files allows. So a segment without recent writes is closed before another opens its files, and it
opens them again with its next write. Writes are not counted for that: a segment whose position is unchanged since the
last check has been idle. The limit applies to the process, hence one instance for all its logs, used by the loop and by
none of its threads. Independent of the content of segments.
"""

import logging
import os
import resource
from collections import OrderedDict
from collections.abc import Callable
from pathlib import Path
from typing import Final, Protocol, TypeVar

from rotunda.broker.log.disk_room import NO_DESCRIPTOR

#: The log file and its three indexes.
FILES_A_SEGMENT: Final = 4

#: Other descriptors of a handler: files to read and send from, memory, bells, the metadata. Half of a low limit.
OTHERS: Final = 1024

LEAST_SEGMENTS: Final = 8

_UNLIMITED: Final = 2**31

_log = logging.getLogger(__name__)

Result = TypeVar("Result")


class Segment(Protocol):
    """An active segment."""

    @property
    def position(self) -> int:
        """Position of its next batch: it rises with every write."""

    def close(self) -> None:
        """Close its descriptors."""


class OpenSegments:
    """The open segments, the longest unchecked first. `closed` counts those closed for lack of descriptors."""

    def __init__(self, most: int = 0) -> None:
        """Allow `most` segments; 0: the limit of this process, read when the first segment is opened."""
        self.closed = 0
        self._most = most
        self._seen: OrderedDict[Segment, int] = OrderedDict()

    def __len__(self) -> int:
        return len(self._seen)

    def admit(self, segment: Segment) -> None:
        """Register a segment that has opened its files; idle ones are closed if there are too many."""
        self._most = self._most or most_segments(resource.getrlimit(resource.RLIMIT_NOFILE)[0])
        if len(self._seen) >= self._most:
            if not self.closed:
                _log.warning(
                    "out of file descriptors: more than %d partitions are written to, closing the longest idle "
                    "segments. To avoid this, raise the limit of open files (ulimit -n, LimitNOFILE in systemd) and "
                    "restart",
                    self._most,
                )
            self._close_idle(len(self._seen) - self._most + 1)
        self._seen[segment] = segment.position

    def forget(self, segment: Segment) -> None:
        """Unregister a segment that has closed its files."""
        self._seen.pop(segment, None)

    def open(self, path: Path, flags: int) -> int:
        """Return a descriptor of a file, as `with_room` does. Raises OSError."""
        return self.with_room(lambda: os.open(path, flags | os.O_CLOEXEC | os.O_NOFOLLOW, 0o644))

    def with_room(self, action: Callable[[], Result]) -> Result:
        """Return the result of an action that opens files. If no descriptor is left, idle segments are closed first.

        Raises its OSError.
        """
        try:
            return action()
        except OSError as error:
            if error.errno not in NO_DESCRIPTOR or not self.make_room():
                raise
        return action()

    def make_room(self) -> bool:
        """Close the quarter of the segments that is idle longest; return whether there were any."""
        if not self._seen:
            return False
        self._close_idle(max(LEAST_SEGMENTS, len(self._seen) // 4))
        return True

    def _close_idle(self, count: int) -> None:
        """Close `count` segments, beginning with those without a write since their last check."""
        seen = self._seen
        for _ in range(len(seen)):
            segment, position = seen.popitem(last=False)
            if segment.position != position:
                seen[segment] = segment.position
                continue
            self._close(segment)
            count -= 1
            if not count:
                return
        while count and seen:
            self._close(seen.popitem(last=False)[0])
            count -= 1

    def _close(self, segment: Segment) -> None:
        segment.close()
        self.closed += 1


def most_segments(limit: int) -> int:
    """Return the number of segments that a process with this descriptor limit may have open; -1: no limit."""
    if limit < 0:
        return _UNLIMITED
    return max(LEAST_SEGMENTS, (limit - min(OTHERS, limit // 2)) // FILES_A_SEGMENT)


#: The open segments of this process.
OPEN_SEGMENTS: Final = OpenSegments()
