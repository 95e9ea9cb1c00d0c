"""The result of a batch, and the futures of its records that `send` returns.

A future has no state of its own: it is a tuple, the cheapest Python object, that refers to its batch. The I/O thread
completes the batch once, for all of its records; any thread may wait.
"""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import Callable, Generator, Sequence
from typing import Any, Final, NamedTuple, TypeAlias

from rotunda.broker.client.errors import DeliveryTimeout, KafkaError, RecordBatchTooLarge
from rotunda.broker.client.topic_partition import TopicPartition

NO_OFFSET: Final = -1
NO_TIMESTAMP: Final = -1

_LOG: Final = logging.getLogger(__name__)
#: Guards waiters for batches: acquired once per batch, and by threads that start to wait.
_WAITERS: Final = threading.Lock()


class RecordMetadata(NamedTuple):
    """A record's position. The offset is -1 if the broker did not return it; sizes are -1 for null."""

    topic: str
    partition: int
    offset: int
    timestamp_ms: int
    serialized_key_size: int
    serialized_value_size: int


DeliveryCallback: TypeAlias = Callable[[RecordMetadata, KafkaError | None], object]
"""(metadata, error), on the I/O thread. With an error the offset of the metadata is -1."""


class RecordFuture(tuple[Any, ...]):
    """The result of a record in a batch.

    Internally a pair: a tuple of batch, timestamp, key size and value size, which equal records share, and the record's
    index in the batch.
    """

    __slots__ = ()

    def done(self) -> bool:
        """Return whether the result is available."""
        batch, _ = self._place()
        return batch.is_done

    def result(self, timeout: float | None = None) -> RecordMetadata:
        """Wait up to `timeout` seconds; return the record's metadata or raise its error.

        Raises TimeoutError if there is no result in time.
        """
        batch, index = self._wait(timeout)
        error = batch.error_of(index)
        if error is not None:
            raise error
        return self._metadata(batch, index)

    def exception(self, timeout: float | None = None) -> KafkaError | None:
        """Wait as `result` does; return the error, or None."""
        batch, index = self._wait(timeout)
        return batch.error_of(index)

    def add_done_callback(self, callback: Callable[[RecordFuture], object]) -> None:
        """Call `callback` with this future on the I/O thread, or immediately if the result is available."""
        batch, index = self._place()
        if not batch.add_callback(index, self, lambda _metadata, _error: callback(self)):
            callback(self)

    def metadata(self) -> RecordMetadata:
        """Return the metadata known so far; internal."""
        batch, index = self._place()
        return self._metadata(batch, index)

    def __await__(self) -> Generator[Any, None, RecordMetadata]:
        batch, _ = self._place()
        while not batch.is_done:
            yield from batch.wait_in(asyncio.get_running_loop()).__await__()
            batch, _ = self._place()
        return self.result()

    def __repr__(self) -> str:
        batch, index = self._place()
        state = "done" if batch.is_done else "pending"
        return f"<RecordFuture {batch.topic_partition.topic}-{batch.topic_partition.partition} #{index} {state}>"

    def _place(self) -> tuple[ProduceResult, int]:
        """Return the record's current batch and index: they change when the batch is split."""
        batch: ProduceResult = self[0][0]
        return batch.place_of(self[1])

    def _wait(self, timeout: float | None) -> tuple[ProduceResult, int]:
        batch, _ = self._place()
        batch.wait(timeout)
        return self._place()

    def _metadata(self, batch: ProduceResult, index: int) -> RecordMetadata:
        topic, partition = batch.topic_partition
        offset, append_time_ms = batch.offset_of(index)
        _, sent_ms, key_size, value_size = self[0]
        timestamp_ms = sent_ms if append_time_ms < 0 else append_time_ms
        return RecordMetadata(topic, partition, offset, timestamp_ms, key_size, value_size)


class FailedFuture(RecordFuture):
    """The result of a record that was not added to any batch."""

    __slots__ = ()

    @classmethod
    def of(cls, topic: str, partition: int | None, error: KafkaError) -> FailedFuture:
        """Return the future of a record that failed before it was appended."""
        return cls((error, RecordMetadata(topic, -1 if partition is None else partition, -1, -1, -1, -1)))

    def done(self) -> bool:
        return True

    def result(self, timeout: float | None = None) -> RecordMetadata:  # noqa: ARG002 - there is nothing to wait for
        error: KafkaError = self[0]
        raise error

    def exception(self, timeout: float | None = None) -> KafkaError | None:  # noqa: ARG002
        error: KafkaError = self[0]
        return error

    def add_done_callback(self, callback: Callable[[RecordFuture], object]) -> None:
        """Call `callback` with this future."""
        callback(self)

    def metadata(self) -> RecordMetadata:
        """Return the topic and the partition, if known."""
        metadata: RecordMetadata = self[1]
        return metadata

    def __await__(self) -> Generator[Any, None, RecordMetadata]:
        yield from ()
        return self.result()

    def __repr__(self) -> str:
        return f"<FailedFuture {self[1].topic}: {self[0]!r}>"


class Outcome(NamedTuple):
    """The result of a batch. `record_errors` are by record index; `error` is for all other records."""

    base_offset: int
    append_time_ms: int
    error: KafkaError | None
    record_errors: dict[int, KafkaError]


class ProduceResult:
    """The result of a partition's records in one batch."""

    __slots__ = ("_callbacks", "_event", "_loops", "_outcome", "_parts", "topic_partition")

    def __init__(self, topic_partition: TopicPartition) -> None:
        self.topic_partition = topic_partition
        self._callbacks: list[tuple[int, RecordFuture, DeliveryCallback]] = []
        self._parts: Sequence[tuple[int, ProduceResult]] = ()
        self._event: threading.Event | None = None
        self._loops: list[tuple[asyncio.AbstractEventLoop, list[asyncio.Future[None]]]] = []
        self._outcome: Outcome | None = None

    def release(self) -> None:
        """Free the records' memory: they are acknowledged, or will not be sent."""

    @property
    def is_done(self) -> bool:
        """Whether the result is available, or the batch was split."""
        return self._outcome is not None

    @property
    def failed(self) -> bool:
        return self._outcome is not None and self._outcome.error is not None

    def done(
        self,
        base_offset: int,
        append_time_ms: int,
        error: KafkaError | None = None,
        record_errors: dict[int, KafkaError] | None = None,
    ) -> bool:
        """Complete the batch; return False if it was complete before, by an abort or its timeout (G27)."""
        return self._complete(Outcome(base_offset, append_time_ms, error, record_errors or {}))

    def complete_exceptionally(self, error: KafkaError, record_errors: dict[int, KafkaError] | None = None) -> bool:
        return self.done(NO_OFFSET, NO_TIMESTAMP, error, record_errors)

    def abort(self, error: KafkaError) -> bool:
        """Fail all records before a result is available."""
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
        """Return a record's error, or None. The batch must be complete."""
        outcome = self._outcome
        if outcome is None:
            raise DeliveryTimeout("the record is not delivered yet")
        return outcome.record_errors.get(index, outcome.error)

    def offset_of(self, index: int) -> tuple[int, int]:
        """Return a record's offset and the broker's append time; -1 if unknown."""
        outcome = self._outcome
        if outcome is None or outcome.error is not None or outcome.base_offset < 0:
            return NO_OFFSET, NO_TIMESTAMP if outcome is None else outcome.append_time_ms
        return outcome.base_offset + index, outcome.append_time_ms

    def place_of(self, index: int) -> tuple[ProduceResult, int]:
        """Return a record's current batch and its index there."""
        batch = self
        while batch._parts:
            first, child = next(each for each in reversed(batch._parts) if each[0] <= index)
            batch, index = child, index - first
        return batch, index

    def hand_over(self, parts: Sequence[tuple[int, ProduceResult]]) -> None:
        """Move the waiters to the parts of a split batch, each given with the index of its first record."""
        with _WAITERS:
            for index, future, callback in self._callbacks:
                first, part = next(each for each in reversed(parts) if each[0] <= index)
                part._callbacks.append((index - first, future, callback))
            self._callbacks = []
            self._parts = parts
        self._complete(Outcome(NO_OFFSET, NO_TIMESTAMP, RecordBatchTooLarge(), {}))

    def add_callback(self, index: int, future: RecordFuture, callback: DeliveryCallback) -> bool:
        """Call `callback` on completion; return False if already complete."""
        with _WAITERS:
            if self._outcome is not None:
                return False
            self._callbacks.append((index, future, callback))
            return True

    def wait(self, timeout_s: float | None = None) -> None:
        """Wait for the results of all records. Raises TimeoutError."""
        with _WAITERS:
            if self._outcome is None and self._event is None:
                self._event = threading.Event()
            event = self._event
        if self._outcome is None and event is not None and not event.wait(timeout_s):
            raise TimeoutError(f"{self.topic_partition}: not acknowledged within {timeout_s} s")
        for _, child in self._parts:
            child.wait(timeout_s)

    def wait_in(self, loop: asyncio.AbstractEventLoop) -> asyncio.Future[None]:
        """Return a future that is set in the event loop on completion."""
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
        # Includes sys.exit(): other records must still be completed.
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
