"""One partition of an internal topic as its coordinator writes it: records of a whole turn in few batches.

Runs in the handler that owns the partition. What is appended during a turn is written with that turn's commit, but for
what may wait for one of the next, and only then is each `done` called: a coordinator answers nothing that is not
committed. Records of one call stand in one batch, so that they are read back together or not at all. Knows nothing of
what the records mean.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from broker.protocol.record_writer import build_batch

#: (key, value); no value deletes the key when the topic is compacted.
Record = tuple[bytes, bytes | None]

#: Called with the Kafka error code, 0 once the records are committed.
Done = Callable[[int], None]

#: Several calls share a batch up to this size of their records.
BATCH_BYTES = 256 * 1024

_NO_PRODUCER = (-1, -1)


class _Run:
    """Records that go into one batch, and whom to tell."""

    __slots__ = ("bytes", "done", "producer", "records")

    def __init__(self, producer: tuple[int, int]) -> None:
        self.producer = producer
        self.records: list[Record] = []
        self.done: list[Done] = []
        self.bytes = 0


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
        self.on_failure: Callable[[], None] = _nobody
        #: Called when there is something to be flushed.
        self.on_dirty: Callable[[CoordinatorLog], None] = _nobody
        #: Whether some of it must not wait.
        self.is_urgent = False
        self._append = append
        self._wall_ms = wall_ms
        self._runs: list[_Run] = []
        #: The newest records, until they are committed.
        self._newest: _Run | None = None

    def append(
        self, records: Sequence[Record], done: Done, producer: tuple[int, int] = _NO_PRODUCER, *, patient: bool = False
    ) -> None:
        """Write records with this turn's commit, or with a later one if they are ``patient``. HOT.

        ``producer`` (id, epoch): as part of its transaction.
        """
        size = 0
        for key, value in records:
            size += len(key) + (0 if value is None else len(value))
        runs = self._runs
        if not patient:
            self.is_urgent = True
        if not runs:
            self.on_dirty(self)
        if not runs or runs[-1].producer != producer or runs[-1].bytes + size > BATCH_BYTES:
            runs.append(_Run(producer))
        run = self._newest = runs[-1]
        run.records.extend(records)
        run.bytes += size
        run.done.append(done)

    def when_committed(self, done: Done) -> None:
        """Tell ``done`` when everything that was appended before is committed or has failed: now if nothing waits."""
        if self._newest is None:
            done(0)
        else:
            self._newest.done.append(done)
            self.is_urgent = True

    def flush(self) -> bool:
        """Stage what has been appended; False if nothing was."""
        runs, self._runs = self._runs, []
        self.is_urgent = False
        for run in runs:
            producer_id, epoch = run.producer
            batch = build_batch(
                run.records,
                self._wall_ms(),
                producer_id=producer_id,
                producer_epoch=epoch,
                transactional=producer_id >= 0,
            )
            self._append(memoryview(batch), self._tell(run))
        return bool(runs)

    def _tell(self, run: _Run) -> Callable[[int, int, int], None]:
        def answer(error: int, base_offset: int, time_ms: int) -> None:
            del base_offset, time_ms
            if self._newest is run:
                self._newest = None
            for done in run.done:
                done(error)
            if error:
                self.on_failure()

        return answer


def _nobody(*_: object) -> None:
    """Stand in for whoever is to be told."""
