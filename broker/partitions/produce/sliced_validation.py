"""Validation of batches before they are staged: at once for most, in slices for slow ones.

Runs in handler processes, between Produce and the appender. A batch that must be decompressed, examined record by
record or recompressed is validated in slices. This changes and notes nothing: a replacement of this process validates
it again. A large one is then written in slices, beyond the end of its log; meanwhile all other batches for that
partition wait. Batches from one connection for one partition are staged in their order of arrival, so that later ones
wait for a slow one; so do all batches forwarded by one target for it, whose connection is unknown. The memory for
validation is bounded: only a few batches are in progress at a time.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Final

from rotunda.broker.log.validation.append_limits import TO_BE_VALIDATED, Validated, written_ahead
from rotunda.broker.partitions.owned_partition import AppendCallback, OwnedPartition
from rotunda.broker.partitions.produce.append_notes import note_rejection
from rotunda.broker.partitions.produce.part_checks import PartChecks
from rotunda.broker.partitions.produce.partition_appender import PartitionAppender
from rotunda.broker.protocol.error_codes import ErrorCode
from rotunda.broker.records.record_batch import BatchHeader, unpack_header
from rotunda.broker.scheduling.deferred import Deferred
from rotunda.broker.scheduling.slices import Slices, Work
from rotunda.broker.scheduling.task_queues import RequestIdentity, TaskQueues

#: Batches validated at a time. Each may need a buffer for decompression, and a copy.
MOST_VALIDATED: Final = 2

_FAULT: Final = int(ErrorCode.UNKNOWN_SERVER_ERROR)


@dataclass(slots=True, frozen=True)
class Append:
    """A batch in the memory of its request, and the callback for its outcome."""

    queue_key: tuple[int, int]
    """Whose batches for this partition keep their order: (connection, or -1 less the target that has it, row)."""
    row: int
    view: memoryview
    place: tuple[int, int, int]
    """(offset, size, version of the Produce)."""
    guard: int
    callback: AppendCallback
    settled: Callable[[int | None], None]
    """Called when its memory is not looked at any more but by the next commit, with the guard that it must bring if it
    has not been appended for want of one."""
    whose: RequestIdentity
    without_log: int
    """The error for a partition whose log is not open."""


class _RowQueues:
    """Rows with a large write in progress, and the queue of batches for each."""

    def __init__(self) -> None:
        self._waiting: dict[int, deque[Deferred]] = {}

    def __contains__(self, row: int) -> bool:
        return row in self._waiting

    def begin(self, row: int) -> Work:
        """Wait until the row is free, and reserve it until `end`."""
        waiting = self._waiting.get(row)
        if waiting is None:
            self._waiting[row] = deque()
            return
        place_in_queue = Deferred()
        waiting.append(place_in_queue)
        yield place_in_queue

    def end(self, row: int) -> None:
        """Release the row to the next one in the queue."""
        waiting = self._waiting[row]
        if waiting:
            waiting.popleft().complete(True)
        else:
            del self._waiting[row]


class SlicedValidation:
    """The batches of one handler in validation, and the queued ones."""

    def __init__(
        self,
        appends: PartitionAppender,
        owned: Mapping[int, OwnedPartition],
        checks: PartChecks,
        slices: Slices,
        now_ns: Callable[[], int],
    ) -> None:
        self._appends = appends
        self._owned = owned
        self._checks = checks
        self._queues = TaskQueues("PRODUCE", slices, now_ns)
        self._validating = 0
        self._to_validate: deque[Deferred] = deque()
        self._row_queues = _RowQueues()

    def has(self, queue_key: tuple[int, int]) -> bool:
        """Return whether a queue has batches in progress."""
        return self._queues.has(queue_key)

    def append(self, append: Append) -> None:
        """Stage a batch now, or after its validation and the earlier batches of its queue."""
        waits = self._queues.has(append.queue_key)
        if waits or not self._try(append, None):
            self._queues.take(
                append.queue_key, append.whose, self._work(append, waits=waits), partial(self._failed, append)
            )

    def _work(self, append: Append, *, waits: bool) -> Work:
        if waits and self._try(append, None):
            return
        while True:
            while self._validating >= MOST_VALIDATED:
                place_in_queue = Deferred()
                self._to_validate.append(place_in_queue)
                yield place_in_queue
            self._validating += 1
            try:
                if (yield from self._validate_and_try(append)):
                    return
            finally:
                self._validating -= 1
                if self._to_validate:
                    self._to_validate.popleft().complete(True)

    def _validate_and_try(self, append: Append) -> Work:
        """Validate a batch, and stage it or respond; False if it must be validated again."""
        row = append.row
        validated = yield from self._settling(append, self._validate(append))
        large = written_ahead(validated)
        if large is None and row not in self._row_queues:
            return self._try(append, validated)
        yield from self._row_queues.begin(row)
        try:
            if large is None:
                return self._try(append, validated)
            return (yield from self._write_and_try(append, validated, large))
        finally:
            self._row_queues.end(row)

    def _write_and_try(self, append: Append, validated: Validated, large: memoryview) -> Work:
        """Write a large batch beyond the end of its log, and stage it or respond.

        Steps that are not run to their end, as at the exit of this process, must not touch files any more.
        """
        owned = self._owned.get(append.row)
        if owned is None:
            return self._try(append, validated)
        owned.log.begin_ahead(large)
        try:
            yield from self._settling(append, self._write(append.row, owned, large))
            is_done = self._try(append, validated)
        except Exception:
            self._end_ahead(append.row, owned)
            raise
        self._end_ahead(append.row, owned)
        return is_done

    def _end_ahead(self, row: int, owned: OwnedPartition) -> None:
        if self._owned.get(row) is owned:
            owned.log.end_ahead()

    def _settling(self, append: Append, steps: Work) -> Work:
        """Run steps for a batch; if they fail, release its memory."""
        try:
            return (yield from steps)
        except Exception:
            append.settled(None)
            raise

    def _validate(self, append: Append) -> Work:
        """Return the log's validation result for a batch; None if the log is closed."""
        owned = self._owned.get(append.row)
        if owned is None:
            return None
        offset, size, _ = append.place
        batch = append.view[offset : offset + size]
        return (yield from owned.log.validate(batch, BatchHeader._make(unpack_header(batch))))

    def _write(self, row: int, owned: OwnedPartition, batch: memoryview) -> Work:
        """Write a large batch, unless the partition is deleted: its files may then belong to another partition."""
        while row in self._appends.dirty:
            yield self._appends.next_commit()
        for _ in owned.log.write_ahead(batch, owned.publish):
            yield None
            if self._owned.get(row) is not owned:
                return

    def _try(self, append: Append, validated: Validated | None) -> bool:
        """Stage a batch, or respond otherwise; False if it must be validated first."""
        owned, number = self._owned.get(append.row), None
        try:
            if owned is None:
                place = append.place[:2]
                error, base_offset = self._checks.without_log(append.view, place, append.row, append.without_log)
                append.callback(error, base_offset, -1)
            else:
                number = self._appends.append(
                    owned, append.view, append.place, append.callback, append.guard, validated
                )
        except Exception:
            append.settled(None)
            raise
        if number == TO_BE_VALIDATED[0]:
            return False
        append.settled(number)
        return True

    def _failed(self, append: Append) -> None:
        """Reject a batch after an internal error."""
        note_rejection(append.view, *append.place[:2], _FAULT)
        append.callback(_FAULT, -1, -1)
