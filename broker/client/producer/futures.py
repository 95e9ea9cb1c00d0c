"""The future returned by `send`, and its result.

A future has no state of its own: it is a tuple, the cheapest Python object, that refers to its batch. The I/O thread
completes the batch once, for all of its records; any thread may wait.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Generator
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

from rotunda.broker.client.errors import KafkaError

if TYPE_CHECKING:
    from rotunda.broker.client.producer.batches.producer_batch import ProduceResult


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
        """Return True."""
        return True

    def result(self, timeout: float | None = None) -> RecordMetadata:  # noqa: ARG002 - there is nothing to wait for
        """Raise the error."""
        error: KafkaError = self[0]
        raise error

    def exception(self, timeout: float | None = None) -> KafkaError | None:  # noqa: ARG002
        """Return the error."""
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
