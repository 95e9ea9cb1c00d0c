"""One partition of an internal topic as its coordinator writes it: records of a whole turn in few batches.

Runs in the handler that owns the partition. What is appended during a turn is written with that turn's commit, but for
what may wait for one of the next, and only then is each `done` called: a coordinator answers nothing that is not
committed. Records of one call stand in one batch, so that they are read back together or not at all. Knows nothing of
what the records mean.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any, Final

from rotunda.broker.protocol.error_codes import ErrorCode
from rotunda.broker.protocol.record_writer import BatchBuilder

if TYPE_CHECKING:
    from rotunda.broker.coordinator.records import Record
    from rotunda.broker.protocol.record_template import RepeatedRecords

logger = logging.getLogger(__name__)

#: Called once: with 0 when the records are committed, or with the Kafka error code that their writer is to answer.
Done = Callable[[int], None]

#: Several calls share a batch up to this size of their records.
BATCH_BYTES: Final = 256 * 1024

#: When so many connections have committed in a window, commits in the next one wait for its end.
MANY_CONNECTIONS: Final = 8

_NO_PRODUCER: Final = (-1, -1)
_NS_PER_MS: Final = 1_000_000


class _Run:
    """Records that go into one batch, and the callbacks for its outcome."""

    __slots__ = ("batch", "committers", "done", "producer")

    def __init__(self, producer: tuple[int, int]) -> None:
        self.producer = producer
        self.batch = BatchBuilder()
        self.done: list[Done] = []
        #: Those whose records are repeated ones.
        self.committers: list[Any] = []


class CoordinatorLog:
    """Appends to one partition of an internal topic."""

    def __init__(
        self,
        topic: str,
        partition: int,
        append: Callable[[memoryview, Callable[[int, int, int], None]], None],
        wall_ms: Callable[[], int],
    ) -> None:
        """``append(batch, answer)`` stages a batch; ``answer(error, base offset, time)`` is called at the commit."""
        self.topic = topic
        self.partition = partition
        #: Called when records could not be written: what the coordinator holds in memory is then ahead of its log.
        self.on_failure: Callable[[], None] = nobody_waits
        #: Called, all at once, with those who wait for repeated records, and what `Done` is called with.
        self.answer_commits: Callable[[list[Any], int], None] = nobody_waits
        #: Called when there is something to be flushed.
        self.on_dirty: Callable[[CoordinatorLog], None] = nobody_waits
        #: Records could not be written: nothing is to be built on what memory holds until the log has been read back.
        self.has_failed = False
        #: Whether some of what waits must not wait longer.
        self.is_urgent = False
        self._append = append
        self._wall_ms = wall_ms
        self._runs: list[_Run] = []
        #: Staged, and not answered yet.
        self._staged: dict[_Run, None] = {}

    def append(
        self, records: Sequence[Record], done: Done, producer: tuple[int, int] = _NO_PRODUCER, *, patient: bool = False
    ) -> None:
        """Write records with this turn's commit, or with a later one if they are ``patient``.

        ``producer`` (id, epoch): as part of its transaction.
        """
        size_bytes = sum(len(key) + (0 if value is None else len(value)) for key, value in records)
        run = self._run_for(size_bytes, producer, patient=patient)
        for key, value in records:
            run.batch.add(key, value)
        run.done.append(done)

    def append_repeated(self, records: RepeatedRecords, firsts: Sequence[int], second: int, committer: object) -> None:
        """Write records that may wait for others, of which only these numbers differ from earlier ones. HOT.

        ``committer`` is whom `answer_commits` is to answer.
        """
        run = self._run_for(records.size_bytes, _NO_PRODUCER, patient=True)
        batch = run.batch
        batch.add_encoded(records.encode(batch.count, firsts, second), records.count)
        run.committers.append(committer)

    def when_committed(self, done: Done) -> None:
        """Call ``done`` once all appended records are committed, or have failed: now if there are none."""
        if self._runs:
            self._runs[-1].done.append(done)
            self.is_urgent = True
        elif self._staged:
            next(reversed(self._staged)).done.append(done)
        else:
            done(ErrorCode.COORDINATOR_NOT_AVAILABLE if self.has_failed else 0)

    def flush(self) -> bool:
        """Stage appended records; False if there are none."""
        runs, self._runs = self._runs, []
        self.is_urgent = False
        # All of them first: one may be answered, with an error, as it is staged.
        self._staged.update(dict.fromkeys(runs))
        for run in runs:
            answer = self._tell(run)
            try:
                self._stage(run, answer)
            except Exception:
                logger.exception("cannot write to %s-%d", self.topic, self.partition)
                answer(int(ErrorCode.UNKNOWN_SERVER_ERROR), -1, -1)
        return bool(runs)

    def _stage(self, run: _Run, answer: Callable[[int, int, int], None]) -> None:
        producer_id, epoch = run.producer
        batch = run.batch.build(
            self._wall_ms(),
            producer_id=producer_id,
            producer_epoch=epoch,
            transactional=producer_id >= 0,
        )
        self._append(memoryview(batch), answer)

    def give_up(self, error: int) -> None:
        """Answer all waiting callers with an error: this process no longer writes to the partition."""
        runs = [*self._staged, *self._runs]
        self._staged, self._runs = {}, []
        for run in runs:
            self._call_all(run, error)

    def _run_for(self, size_bytes: int, producer: tuple[int, int], *, patient: bool) -> _Run:
        """Return the batch for so many bytes of records."""
        runs = self._runs
        if not patient:
            self.is_urgent = True
        if not runs:
            self.on_dirty(self)
        elif runs[-1].producer == producer and runs[-1].batch.size_bytes + size_bytes <= BATCH_BYTES:
            return runs[-1]
        run = _Run(producer)
        runs.append(run)
        return run

    def _tell(self, run: _Run) -> Callable[[int, int, int], None]:
        def answer(error: int, base_offset: int, time_ms: int) -> None:
            del base_offset, time_ms
            self._staged.pop(run, None)
            if error:
                self.has_failed = True
            # What came after a failure may stand, but rests on what does not.
            self._call_all(run, ErrorCode.COORDINATOR_NOT_AVAILABLE if self.has_failed else 0)
            if error:
                self.on_failure()

        return answer

    def _call_all(self, run: _Run, error: int) -> None:
        committers, run.committers = run.committers, []
        if committers:
            self.answer_commits(committers, error)
        callbacks, run.done = run.done, []
        call_each(callbacks, error)


class CommitBatcher:
    """The windows of one handler in which commits of offsets wait for others, so that many share a batch and a write.

    As Kafka's `group.coordinator.append.linger.ms`, but a commit waits for the end of a window only if many clients
    have committed in the one before. Without a length nothing waits.
    """

    def __init__(self, linger_ms: Callable[[], int]) -> None:
        self._linger_ms = linger_ms
        #: Those that have committed in this window: who takes a commit adds to them.
        self.connections: set[int] = set()
        self._are_many = False
        #: When the window ends.
        self.end_ns = 0
        #: Whether what is patient is to be written in this turn.
        self.is_over = True

    def turn(self, now_ns: int) -> None:
        """Start the next window if one has ended. HOT: once a turn."""
        if now_ns < self.end_ns:
            self.is_over = not self._are_many
            return
        connections, linger_ms = self.connections, self._linger_ms()
        self._are_many = False
        if connections:
            self._are_many = len(connections) >= MANY_CONNECTIONS
            connections.clear()
        self.end_ns = now_ns + linger_ms * _NS_PER_MS if linger_ms > 0 else now_ns
        self.is_over = True


def call_each(callbacks: Iterable[Done], error: int) -> None:
    """Call each with an error code. An exception of one does not affect the others."""
    for done in callbacks:
        try:
            done(error)
        except Exception:
            logger.exception("post-commit callback of a coordinator append failed")


def nobody_waits(*_: object) -> None:
    """Ignore an outcome: after a failure the partition is loaded again."""
