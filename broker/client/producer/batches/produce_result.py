"""What becomes of a batch, and who waits for it: Kafka's ProduceRequestResult.

It is completed once, by the I/O thread or by who closes the producer. Whoever waits for a record waits for its batch:
in a thread for one event, in an event loop for a future of one's own, since a task that is cancelled cancels what it
waits for; each loop is woken once. A batch that was too large hands over to its parts. Only records that came with a
callback cost the I/O thread something each.
"""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import Sequence
from typing import Final, NamedTuple

from broker.client.errors import DeliveryTimeout, KafkaError, RecordBatchTooLarge
from broker.client.producer.futures import DeliveryCallback, RecordFuture
from broker.client.topic_partition import TopicPartition

NO_OFFSET: Final = -1
NO_TIMESTAMP: Final = -1

_LOG: Final = logging.getLogger(__name__)
#: Guards who waits for batches: taken once a batch, and by those who begin to wait.
_WAITERS: Final = threading.Lock()


class Outcome(NamedTuple):
    """What became of a batch. `record_errors` are by the index of a record; of all others `error` holds."""

    base_offset: int
    append_time_ms: int
    error: KafkaError | None
    record_errors: dict[int, KafkaError]


class ProduceResult:
    """The outcome of the records of one partition that stand in one batch."""

    __slots__ = ("_callbacks", "_event", "_loops", "_outcome", "_parts", "topic_partition")

    def __init__(self, topic_partition: TopicPartition) -> None:
        self.topic_partition = topic_partition
        self._callbacks: list[tuple[int, RecordFuture, DeliveryCallback]] = []
        self._parts: Sequence[tuple[int, ProduceResult]] = ()
        self._event: threading.Event | None = None
        self._loops: list[tuple[asyncio.AbstractEventLoop, list[asyncio.Future[None]]]] = []
        self._outcome: Outcome | None = None

    def release(self) -> None:
        """Give the records' memory away: they have been acknowledged, or nobody will send them."""

    @property
    def is_done(self) -> bool:
        """Whether its outcome is known, or that it is split."""
        return self._outcome is not None

    @property
    def failed(self) -> bool:
        """Whether it has been completed with an error."""
        return self._outcome is not None and self._outcome.error is not None

    def done(
        self,
        base_offset: int,
        append_time_ms: int,
        error: KafkaError | None = None,
        record_errors: dict[int, KafkaError] | None = None,
    ) -> bool:
        """Complete the batch: return False if it had been already, by an abort or its timeout (G27)."""
        return self._complete(Outcome(base_offset, append_time_ms, error, record_errors or {}))

    def complete_exceptionally(self, error: KafkaError, record_errors: dict[int, KafkaError] | None = None) -> bool:
        """Fail all records."""
        return self.done(NO_OFFSET, NO_TIMESTAMP, error, record_errors)

    def abort(self, error: KafkaError) -> bool:
        """Fail all records before their outcome is known."""
        return self.complete_exceptionally(error)

    def _complete(self, outcome: Outcome) -> bool:
        with _WAITERS:
            if self._outcome is not None:
                return False
            self._outcome = outcome
            event, loops = self._event, self._loops
            callbacks, self._callbacks = self._callbacks, []
        if event is not None:
            event.set()
        for loop, futures in loops:
            _wake(loop, futures)
        for index, record, callback in callbacks:
            _call(callback, record, self.error_of(index))
        self.release()
        return True

    def error_of(self, index: int) -> KafkaError | None:
        """Return what went wrong with a record, None for nothing. The outcome must be known."""
        outcome = self._outcome
        if outcome is None:
            raise DeliveryTimeout("the record's outcome is not known yet")
        return outcome.record_errors.get(index, outcome.error)

    def offset_of(self, index: int) -> tuple[int, int]:
        """Return a record's offset, and the broker's time of appending; -1 where they are not known."""
        outcome = self._outcome
        if outcome is None or outcome.error is not None or outcome.base_offset < 0:
            return NO_OFFSET, NO_TIMESTAMP if outcome is None else outcome.append_time_ms
        return outcome.base_offset + index, outcome.append_time_ms

    def place_of(self, index: int) -> tuple[ProduceResult, int]:
        """Return the batch that a record is in now, and its index there."""
        batch = self
        while batch._parts:
            first, child = next(each for each in reversed(batch._parts) if each[0] <= index)
            batch, index = child, index - first
        return batch, index

    def hand_over(self, parts: Sequence[tuple[int, ProduceResult]]) -> None:
        """Let parts, each with the index of its first record, take over who waits for the records."""
        with _WAITERS:
            for index, future, callback in self._callbacks:
                first, part = next(each for each in reversed(parts) if each[0] <= index)
                part._callbacks.append((index - first, future, callback))
            self._callbacks = []
            self._parts = parts
        self._complete(Outcome(NO_OFFSET, NO_TIMESTAMP, RecordBatchTooLarge(), {}))

    def add_callback(self, index: int, future: RecordFuture, callback: DeliveryCallback) -> bool:
        """Have `callback` called when the outcome is known; return False if it is."""
        with _WAITERS:
            if self._outcome is not None:
                return False
            self._callbacks.append((index, future, callback))
            return True

    def wait(self, timeout_s: float | None = None) -> None:
        """Wait until the outcome of all of its records is known. Raises TimeoutError."""
        with _WAITERS:
            if self._outcome is None and self._event is None:
                self._event = threading.Event()
            event = self._event
        if self._outcome is None and event is not None and not event.wait(timeout_s):
            raise TimeoutError(f"{self.topic_partition}: not acknowledged within {timeout_s} s")
        for _, child in self._parts:
            child.wait(timeout_s)

    def wait_in(self, loop: asyncio.AbstractEventLoop) -> asyncio.Future[None]:
        """Return what one task awaits in an event loop until the outcome is known."""
        future = loop.create_future()
        with _WAITERS:
            if self._outcome is not None:
                future.set_result(None)
                return future
            for known, futures in self._loops:
                if known is loop:
                    futures.append(future)
                    return future
            self._loops.append((loop, [future]))
        return future


def _call(callback: DeliveryCallback, record: RecordFuture, error: KafkaError | None) -> None:
    try:
        callback(record.metadata(), error)
    except BaseException:
        # Also sys.exit(): nobody else's records shall wait for ever.
        _LOG.exception("A callback for a delivered record failed")


def _wake(loop: asyncio.AbstractEventLoop, futures: Sequence[asyncio.Future[None]]) -> None:
    def settle() -> None:
        for future in futures:
            if not future.done():
                future.set_result(None)

    try:
        loop.call_soon_threadsafe(settle)
    except RuntimeError:
        _LOG.debug("The event loop that waits for a record has been closed")
