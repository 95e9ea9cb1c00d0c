"""The flush state: which part of a partition is not durable, and when its flush is due (`flush.messages`, `flush.ms`).

Below `recovery_point` the log and its indexes are durable, so a start of the broker need not check them. Without either
setting the kernel chooses the time of write-back, as with Kafka; rolled segments are flushed after a delay, when the
flush is nearly free. Only the owner of the partition uses this.
"""

import os
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path

from rotunda.broker.log.flusher import FlushJob
from rotunda.broker.log.leader_epochs import FILE_NAME as EPOCHS_FILE
from rotunda.broker.log.segments.open_segments import OPEN_SEGMENTS
from rotunda.broker.log.segments.segment_files import (
    INDEX_SUFFIX,
    LOG_SUFFIX,
    TIME_INDEX_SUFFIX,
    TXN_INDEX_SUFFIX,
    segment_file,
    sync_directory,
)

#: Kafka's value for "never" in flush.messages and flush.ms.
NEVER = 2**63 - 1

#: After this delay the kernel has written a rolled segment back by itself.
ROLLED_FLUSH_DELAY_NS = 60 * 1_000_000_000

#: Delay of a retry after a flush without a free descriptor.
_AGAIN_NS = 1_000_000_000

_NS_PER_MS = 1_000_000


class FlushState:
    """The flush state of one partition.

    `recovery_point` moves only when data, indexes, leader epochs and directory are all durable.
    """

    __slots__ = (
        "_directory",
        "_rolled",
        "_synced_offset",
        "due_ns",
        "flush_messages",
        "flush_ms",
        "on_due",
        "recovery_point",
    )

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self.flush_messages = NEVER
        self.flush_ms = NEVER
        self.recovery_point = 0
        #: Set a new time with `_set_due`.
        self.due_ns: int | None = None
        #: Called when a flush gets its due time, so that nobody looks at logs without one.
        self.on_due: Callable[[], None] | None = None
        self._synced_offset = 0
        self._rolled: list[int] = []

    def reset(self, recovery_point: int, bases: list[int], now_ns: int) -> None:
        """Start from a durable log up to `recovery_point`; `bases` are the base offsets of all segments."""
        self.recovery_point = self._synced_offset = recovery_point
        self._rolled = []
        self.due_ns = None
        for base_offset, following in pairwise(bases):
            if following > recovery_point:
                self.note_roll(base_offset, now_ns)

    def is_due_at(self, end_offset: int) -> bool:
        """Return whether flush.messages requires a flush before `end_offset` is acknowledged."""
        return end_offset - self._synced_offset >= self.flush_messages

    def note_commit(self, now_ns: int) -> None:
        """Record a write that is not durable: flush.ms counts from the first such write."""
        if self.due_ns is None and self.flush_ms != NEVER:
            self._set_due(now_ns + self.flush_ms * _NS_PER_MS)

    def note_roll(self, base_offset: int, now_ns: int) -> None:
        """Record that the segment at `base_offset` is complete and not durable."""
        self._rolled.append(base_offset)
        if self.due_ns is None:
            self._set_due(now_ns + ROLLED_FLUSH_DELAY_NS)

    def sync_data(self, fd: int, end_offset: int, now_ns: int) -> None:
        """Make everything below `end_offset` durable; `fd` is the active segment's file. Raises OSError."""
        for base_offset in self._rolled:
            self._sync(segment_file(self._directory, base_offset, LOG_SUFFIX))
        os.fdatasync(fd)
        self._synced_offset = end_offset
        # The indexes are flushed later, and the recovery point moves then.
        if self.due_ns is None:
            self._set_due(now_ns + ROLLED_FLUSH_DELAY_NS)

    def sync_rolled(self) -> None:
        """Make rolled segments, their indexes and the leader epochs durable. Raises OSError."""
        for base_offset in self._rolled:
            for suffix in (LOG_SUFFIX, INDEX_SUFFIX, TIME_INDEX_SUFFIX, TXN_INDEX_SUFFIX):
                self._sync(segment_file(self._directory, base_offset, suffix))
        self._sync(self._directory / EPOCHS_FILE)
        self._rolled = []
        sync_directory(self._directory)

    def begin(self, active_base: int, end_offset: int) -> FlushJob:
        """Return a job that makes everything below `end_offset` durable. Later writes set a new due time."""
        self.due_ns = None
        return FlushJob(self._directory, (*self._rolled, active_base), end_offset)

    def end(self, job: FlushJob) -> None:
        """Record a finished job. More may have been written and rolled meanwhile."""
        self._rolled = [base_offset for base_offset in self._rolled if base_offset not in job.bases[:-1]]
        self.recovery_point = max(self.recovery_point, job.end_offset)
        self._synced_offset = max(self._synced_offset, job.end_offset)

    def put_off(self, now_ns: int) -> None:
        """Postpone a job that failed for lack of a descriptor."""
        self._set_due(now_ns + _AGAIN_NS)

    def done(self, end_offset: int) -> None:
        """Record that everything below `end_offset` is durable, indexes included."""
        self.recovery_point = self._synced_offset = end_offset
        self.due_ns = None

    def _set_due(self, due_ns: int) -> None:
        self.due_ns = due_ns
        if self.on_due is not None:
            self.on_due()

    @staticmethod
    def _sync(path: Path) -> None:
        try:
            fd = OPEN_SEGMENTS.open(path, os.O_RDONLY)
        except FileNotFoundError:
            return  # deleted meanwhile
        try:
            os.fsync(fd)
        finally:
            os.close(fd)
