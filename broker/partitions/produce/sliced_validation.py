"""The validation of batches before they are staged: most at once, long ones in slices.

Runs in handler processes, between Produce and what it stages. A batch that must be unpacked, looked at record by record
or packed anew is validated in slices. Nothing is changed by that, and nothing noted: a replacement of this process
validates it again. Batches from one connection for one partition are staged in the order in which they came, so that
what comes while one is validated waits behind it; so does all that another target forwards for it, whose connection is
not known. What validation holds in memory is bounded: few are under way at a time.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Final

from broker.log.append_limits import TO_BE_JUDGED, Judged
from broker.partitions.owned_partition import Answer, OwnedPartition
from broker.partitions.produce.append_notes import note_refusal
from broker.partitions.produce.partition_appender import PartitionAppender
from broker.partitions.produce.produce_queues import ProduceQueues, RequestIdentity
from broker.partitions.produce.produce_refusals import PartRefusals
from broker.protocol.error_codes import ErrorCode
from broker.protocol.records import BatchHeader, unpack_header
from broker.scheduling.deferred import Deferred
from broker.scheduling.slices import Slices, Work

#: So many batches are judged at a time. Each may have what it is unpacked into, and a copy.
MOST_JUDGED: Final = 2

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
    answer: Answer
    settled: Callable[[int | None], None]
    """Called when its memory is not looked at any more but by the next commit, with the guard that it must bring if it
    has not been appended for want of one."""
    whose: RequestIdentity
    without_log: int
    """The error for a partition whose log is not open."""


class SlicedValidation:
    """The batches of one handler that are judged, and those that wait for them."""

    def __init__(
        self,
        appends: PartitionAppender,
        owned: Mapping[int, OwnedPartition],
        refusals: PartRefusals,
        slices: Slices,
        now_ns: Callable[[], int],
    ) -> None:
        self._appends = appends
        self._owned = owned
        self._refusals = refusals
        self._queues = ProduceQueues(slices, now_ns)
        self._judging = 0
        self._to_judge: deque[Deferred] = deque()

    def has(self, queue_key: tuple[int, int]) -> bool:
        """Whether batches of a queue are under way."""
        return self._queues.has(queue_key)

    def append(self, append: Append) -> None:
        """Stage a batch now, or when it has been judged and what came before it is staged."""
        waits = self._queues.has(append.queue_key)
        if waits or not self._try(append, None):
            self._queues.take(
                append.queue_key, append.whose, self._work(append, waits=waits), partial(self._failed, append)
            )

    def _work(self, append: Append, *, waits: bool) -> Work:
        if waits and self._try(append, None):
            return
        while True:
            try:
                judged = yield from self._judge(append)
            except Exception:
                append.settled(None)
                raise
            if self._try(append, judged):
                return

    def _judge(self, append: Append) -> Work:
        """Return what the log makes of a batch, when it is its turn; None if there is no log any more."""
        while self._judging >= MOST_JUDGED:
            turn = Deferred()
            self._to_judge.append(turn)
            yield turn
        self._judging += 1
        try:
            owned = self._owned.get(append.row)
            if owned is None:
                return None
            offset, size, _ = append.place
            batch = append.view[offset : offset + size]
            return (yield from owned.log.judge(batch, BatchHeader._make(unpack_header(batch))))
        finally:
            self._judging -= 1
            if self._to_judge:
                self._to_judge.popleft().complete(True)

    def _try(self, append: Append, judged: Judged | None) -> bool:
        """Stage a batch, or answer it otherwise; False if it must be judged first."""
        owned, number = self._owned.get(append.row), None
        try:
            if owned is None:
                place = append.place[:2]
                error, base_offset = self._refusals.without_log(append.view, place, append.row, append.without_log)
                append.answer(error, base_offset, -1)
            else:
                number = self._appends.append(owned, append.view, append.place, append.answer, append.guard, judged)
        except Exception:
            append.settled(None)
            raise
        if number == TO_BE_JUDGED[0]:
            return False
        append.settled(number)
        return True

    def _failed(self, append: Append) -> None:
        """Refuse a batch that has met a fault of ours."""
        note_refusal(append.view, *append.place[:2], _FAULT)
        append.answer(_FAULT, -1, -1)
