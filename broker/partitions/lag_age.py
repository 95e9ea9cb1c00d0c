"""The age of a lag: the age of a group's oldest unread record, looked up once by its batch in the log files.

Runs in handler processes, for the snapshot of groups. A batch's first timestamp is used for all its records, so an age
can be too large by the time a producer needed to fill the batch. Uses its own readers, so that lookups do not evict the
cached positions of fetches.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Final

from rotunda.broker.log.log_reader import LogReader
from rotunda.broker.records.record_batch import BATCH_HEADER_BYTES, read_header

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from rotunda.broker.log.log_reader import End, FileSlice
    from rotunda.broker.records.record_batch import BatchHeader
    from rotunda.shm.tables.partitions import PartitionTable

#: Most batches looked up for one snapshot; later snapshots look up the rest.
MOST_LOOKUPS: Final = 200

#: Most consecutive control batches skipped; consumers never see them as records.
MOST_MARKERS: Final = 100

_NO_TIME: Final = -1
_NOTHING_UNREAD: Final = -2


class LagAges:
    """Caches the timestamp of a lag's first batch for as long as the group's offset does not change."""

    def __init__(self, data_dir: Path, partitions: PartitionTable, wall_ms: Callable[[], int]) -> None:
        self._data_dir = data_dir
        self._partitions = partitions
        self._wall_ms = wall_ms
        self._now_ms = 0
        self._lookups = 0
        # (Topic, partition, row, offset) -> first timestamp of its batch; from the last snapshot and from the current
        # one.
        self._known: dict[tuple[str, int, int, int], int] = {}
        self._used: dict[tuple[str, int, int, int], int] = {}
        self._readers: dict[tuple[str, int, int], LogReader] = {}
        self._used_readers: dict[tuple[str, int, int], LogReader] = {}

    def begin(self) -> None:
        """Begin a snapshot; all its ages are computed from the current time."""
        self._now_ms = self._wall_ms()
        self._lookups = 0

    def end(self) -> None:
        """Drop cache entries that this snapshot did not use."""
        self._known, self._used = self._used, {}
        self._readers, self._used_readers = self._used_readers, {}

    def age_s(self, place: tuple[str, int, int], offset: int, end: End) -> float | None:
        """Return the age in seconds of the record at an offset of (topic, partition, row); None if unknown."""
        key = (*place, offset)
        time_ms = self._known.get(key)
        if time_ms is None:
            if self._lookups >= MOST_LOOKUPS:
                return None
            self._lookups += 1
            time_ms = self._look_up(place, offset, end)
        if time_ms == _NOTHING_UNREAD:
            # Not cached: valid only until the next append.
            return 0.0
        self._used[key] = time_ms
        if time_ms <= _NO_TIME:
            return None
        return max(0, self._now_ms - time_ms) / 1000

    def _look_up(self, place: tuple[str, int, int], offset: int, end: End) -> int:
        topic, partition, row = place
        reader = self._used_readers.get(place) or self._readers.get(place)
        if reader is None:
            reader = LogReader(self._data_dir / f"{topic}-{partition}")
        self._used_readers[place] = reader
        removals = self._partitions.removals(row)
        if reader.removals_seen != removals:
            reader.forget()
            reader.removals_seen = removals
        for _ in range(MOST_MARKERS):
            found = reader.locate(offset, end, BATCH_HEADER_BYTES)
            header = None if found is None or not found.length else _header_at(found)
            if header is None:
                return _NO_TIME
            if not header.is_control:
                return header.max_timestamp if header.is_log_append_time else header.base_timestamp
            offset = header.base_offset + header.last_offset_delta + 1
            if offset >= end[0]:
                return _NOTHING_UNREAD
        return _NO_TIME


def _header_at(found: FileSlice) -> BatchHeader | None:
    """Return the header of the batch at the start of a slice, or None if its file was removed or replaced."""
    try:
        fd = os.open(found.path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW)
    except FileNotFoundError:
        return None
    try:
        if os.fstat(fd).st_ino != found.inode:
            return None
        return read_header(os.pread(fd, BATCH_HEADER_BYTES, found.position))
    finally:
        os.close(fd)
