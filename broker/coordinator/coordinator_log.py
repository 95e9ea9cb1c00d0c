"""A coordinator's log: appends the records of a loop pass to one partition of an internal topic, in few batches.

Runs in the handler that owns the partition. Records appended during a loop pass are written with its commit, except
patient ones, which can wait for a later commit. Each `done` is called only after the commit: a coordinator sends no
response for uncommitted records. The records of one call are in one batch, so that all or none of them are loaded
again. Must not know the meaning of the records.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from rotunda.broker.protocol.error_codes import ErrorCode
from rotunda.broker.records.record_writer import BatchBuilder

if TYPE_CHECKING:
    from rotunda.broker.coordinator.offsets.repeated_records import RepeatedRecords
    from rotunda.broker.coordinator.records import Record

logger = logging.getLogger(__name__)

#: Called once: with 0 when the records are committed, or with the Kafka error code for the response.
Done = Callable[[int], None]

#: Several calls share a batch up to this size of their records.
BATCH_BYTES: Final = 256 * 1024

#: If this many connections commit in one window, commits in the next window wait for its end.
MANY_CONNECTIONS: Final = 8

_NO_PRODUCER: Final = (-1, -1)
_NS_PER_MS: Final = 1_000_000


class _Run:
    """The records of one batch, and the callbacks for its outcome."""

    __slots__ = ("batch", "committers", "done", "producer")

    def __init__(self, producer: tuple[int, int]) -> None:
        self.producer = producer
        self.batch = BatchBuilder()
        self.done: list[Done] = []
        #: The committers with repeated records.
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
        """Use ``append(batch, callback)`` to stage; it calls ``callback(error, base offset, time)`` at the commit."""
        self.topic = topic
        self.partition = partition
        #: Called after a failed write: the coordinator's memory is then ahead of its log.
        self.on_failure: Callable[[], None] = nobody_waits
        #: Called once for all committers of repeated records in a batch, with the error code as for `Done`.
        self.send_commits: Callable[[list[Any], int], None] = nobody_waits
        #: Called when the first record is appended after a flush.
        self.on_dirty: Callable[[CoordinatorLog], None] = nobody_waits
        #: A write has failed: memory is invalid until the log has been loaded again.
        self.has_failed = False
        #: Whether any appended records must not wait for a later commit.
        self.is_urgent = False
        self._append = append
        self._wall_ms = wall_ms
        self._runs: list[_Run] = []
        #: Batches that are staged and not committed yet.
        self._staged: dict[_Run, None] = {}

    def append(
        self, records: Sequence[Record], done: Done, producer: tuple[int, int] = _NO_PRODUCER, *, patient: bool = False
    ) -> None:
        """Append records for this loop pass's commit, or for a later one if they are ``patient``.

        ``producer`` (id, epoch): write them in its transaction.
        """
        size_bytes = sum(len(key) + (0 if value is None else len(value)) for key, value in records)
        run = self._run_for(size_bytes, producer, patient=patient)
        for key, value in records:
            run.batch.add(key, value)
        run.done.append(done)

    def append_repeated(self, records: RepeatedRecords, firsts: Sequence[int], second: int, committer: object) -> None:
        """Append patient records that differ from earlier ones only in these numbers. HOT.

        ``committer`` is passed to `send_commits`.
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
        # Register all first: staging may fail and call a callback at once.
        self._staged.update(dict.fromkeys(runs))
        for run in runs:
            producer_id, epoch = run.producer
            try:
                batch = run.batch.build(
                    self._wall_ms(), producer_id=producer_id, producer_epoch=epoch, transactional=producer_id >= 0
                )
                self._append(memoryview(batch), partial(self._committed, run))
            except Exception:
                logger.exception("cannot write to %s-%d", self.topic, self.partition)
                self._committed(run, int(ErrorCode.UNKNOWN_SERVER_ERROR), -1, -1)
        return bool(runs)

    def give_up(self, error: int) -> None:
        """Fail all pending callbacks with an error: this process no longer writes to the partition."""
        runs = [*self._staged, *self._runs]
        self._staged, self._runs = {}, []
        for run in runs:
            self._call_all(run, error)

    def _run_for(self, size_bytes: int, producer: tuple[int, int], *, patient: bool) -> _Run:
        """Return the batch for this many bytes of records."""
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

    def _committed(self, run: _Run, error: int, _base_offset: int, _time_ms: int) -> None:
        """Call the callbacks of a batch after its commit, or after a failed one."""
        self._staged.pop(run, None)
        if error:
            self.has_failed = True
        # A batch after a failure may be committed, but depends on one that is not.
        self._call_all(run, ErrorCode.COORDINATOR_NOT_AVAILABLE if self.has_failed else 0)
        if error:
            self.on_failure()

    def _call_all(self, run: _Run, error: int) -> None:
        committers, run.committers = run.committers, []
        if committers:
            self.send_commits(committers, error)
        callbacks, run.done = run.done, []
        call_each(callbacks, error)


class CommitBatcher:
    """The commit windows of one handler: offset commits wait for each other, and many share a batch and a write.

    Like Kafka's `group.coordinator.append.linger.ms`, but a commit waits for the end of a window only if many clients
    have committed in the previous one. With a length of 0 no commit waits.
    """

    def __init__(self, linger_ms: Callable[[], int]) -> None:
        self._linger_ms = linger_ms
        #: Connections that have committed in this window; the commit handlers add to it.
        self.connections: set[int] = set()
        self._are_many = False
        #: End of the window.
        self.end_ns = 0
        #: Whether patient records are written in this loop pass.
        self.is_over = True

    def run_once(self, now_ns: int) -> None:
        """Start the next window if the current one is over. HOT: once per loop pass."""
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
