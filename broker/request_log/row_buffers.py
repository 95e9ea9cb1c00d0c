"""Rows that are not in a finished file yet, by dataset and hour, and the writing of their files.

Runs in the recorder. A buffer's rows are settled with their sources when its file is finished; a file that cannot be
written is dropped and recorded as a gap.
"""

from __future__ import annotations

import errno
import logging
from collections import Counter
from collections.abc import Callable
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rotunda.broker.request_log.columns import DATASETS
from rotunda.broker.request_log.part_files import SUFFIX, hour_path

if TYPE_CHECKING:
    from rotunda.broker.request_log.tables import OpenPart
    from rotunda.broker.request_log.values import Values

logger = logging.getLogger(__name__)

_DISK_FULL = frozenset({errno.ENOSPC, errno.EDQUOT})

#: Approximate number of rows that are converted to Arrow at once.
GROUP_ROWS = 32_768

#: The same for rows added one by one, whose texts clients may make long.
GROUP_EVENTS = 4096

#: Increments by (source, counter).
Settlement = Counter[tuple[int, str]]

#: Converts the chunks of a buffer to the values of its dataset's columns.
Values_of = Callable[[str, list[Any]], "dict[str, Values]"]


_OF_ARRAYS = frozenset({"requests", "connections"})


class RowBuffer:
    """The rows of one dataset in one hour."""

    def __init__(self, dataset: str, hour: int, now_ns: int) -> None:
        self.dataset = dataset
        self.hour = hour
        self.begun_ns = now_ns
        self.group_rows = GROUP_ROWS if dataset in _OF_ARRAYS else GROUP_EVENTS
        self.chunks: list[Any] = []
        self.rows = 0
        self.settlement: Settlement = Counter()
        self.part: OpenPart | None = None


class RowBuffers:
    """All pending buffers."""

    def __init__(self, root: Path, name: str, values_of: Values_of) -> None:
        """Files are called part-``name``-number."""
        self._root = root
        self._name = name
        self._values_of = values_of
        self._numbers = count(1)
        self._buffers: dict[tuple[str, int], RowBuffer] = {}
        #: Whether rows may be written: importing the required modules would delay the sources.
        self.is_prepared = True
        #: Rows in files that were finished.
        self.rows_written = 0
        self.files_written = 0

    def add(self, dataset: str, hour: int, chunk: Any, rows: int, now_ns: int) -> Settlement:
        """Add rows; return their settlement, for the caller to add to."""
        buffer = self._buffers.get((dataset, hour))
        if buffer is None:
            buffer = self._buffers[dataset, hour] = RowBuffer(dataset, hour, now_ns)
        buffer.chunks.append(chunk)
        buffer.rows += rows
        return buffer.settlement

    def pending(self) -> bool:
        """Return whether any row is not in a finished file."""
        return bool(self._buffers)

    def oldest_ns(self) -> int | None:
        """Return when the oldest pending buffer was begun."""
        return min((buffer.begun_ns for buffer in self._buffers.values()), default=None)

    def convert_groups(self, *, everything: bool = False) -> None:
        """Convert the rows of full groups, or all rows, to Arrow. Does nothing until `is_prepared`."""
        if not self.is_prepared:
            return
        for buffer in self._buffers.values():
            if everything or buffer.rows >= buffer.group_rows:
                self._converted(buffer)
                buffer.chunks = []
                buffer.rows = 0

    def roll(self, before_ns: int, roll_bytes: int) -> tuple[list[RowBuffer], list[RowBuffer]]:
        """Finish files begun before a time, or large enough. Return the (finished, dropped) buffers."""
        due = [
            buffer
            for buffer in self._buffers.values()
            if buffer.begun_ns <= before_ns or (buffer.part is not None and buffer.part.size_bytes >= roll_bytes)
        ]
        finished = [buffer for buffer in due if self._try_finish(buffer)]
        return finished, [buffer for buffer in due if buffer not in finished]

    def _try_finish(self, buffer: RowBuffer) -> bool:
        """Finish the file of a buffer and forget the buffer. Return whether it succeeded."""
        try:
            part = self._converted(buffer)
            # Never make the data directory itself: a removed one must not be replaced.
            self._root.mkdir(exist_ok=True)
            part.finish()
        except OSError as error:
            # The controller reports a full disk, once.
            level = logging.DEBUG if error.errno in _DISK_FULL else logging.ERROR
            logger.log(level, "cannot write rows of %s: %s", buffer.dataset, error)
            return False
        finally:
            del self._buffers[buffer.dataset, buffer.hour]
        self.rows_written += part.rows
        self.files_written += 1
        return True

    def _converted(self, buffer: RowBuffer) -> OpenPart:
        """Return the file in progress of a buffer, with all of its rows."""
        # Arrow is large: an unused broker does not load it.
        from rotunda.broker.request_log.tables import OpenPart, batch_of  # noqa: PLC0415

        dataset = DATASETS[buffer.dataset]
        if buffer.part is None:
            name = f"part-{self._name}-{next(self._numbers):06d}{SUFFIX}"
            buffer.part = OpenPart(hour_path(self._root, buffer.dataset, buffer.hour), name, dataset)
        if buffer.chunks:
            buffer.part.add(batch_of(dataset, self._values_of(buffer.dataset, buffer.chunks)))
        return buffer.part
