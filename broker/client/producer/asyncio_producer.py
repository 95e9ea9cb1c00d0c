"""The producer for programs on asyncio: the same core, and nothing in it blocks the event loop.

Records go the short way of `Producer.send` wherever a batch is open. What may wait for metadata, for room in the buffer
or for the broker is done in threads of the producer's own: what else the program has the loop's executor do need not
wait for them, nor need the end of the loop and of the process. Those of `send` may all be waiting, and serve no other
call. A future is awaited with one wake-up a batch and loop.
"""

from __future__ import annotations

import asyncio
import queue
import threading
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Executor, Future
from functools import partial
from types import TracebackType
from typing import TYPE_CHECKING, Any, Final, ParamSpec, Self, TypeVar

from rotunda.broker.client.errors import KafkaError
from rotunda.broker.client.producer.batches.record_layout import Headers
from rotunda.broker.client.producer.futures import DeliveryCallback, RecordFuture, RecordMetadata
from rotunda.broker.client.producer.producer import Producer
from rotunda.broker.client.topic_partition import TopicPartition

if TYPE_CHECKING:
    from rotunda.broker.client.network.snapshot import PartitionMetadata
    from rotunda.broker.client.producer.consumer_offsets import ConsumerGroupMetadata, OffsetAndMetadata

_P = ParamSpec("_P")
_T = TypeVar("_T")
_Call = tuple["Future[Any]", Callable[[], Any]]
#: So many records wait at a time, for metadata or room; more wait for those.
_MOST_WAITING: Final = 16


class DaemonThreads(Executor):
    """So many threads at most, begun as they are needed; further calls wait for one."""

    def __init__(self, most: int, name: str) -> None:
        self._most = most
        self._name = name
        self._calls: queue.SimpleQueue[_Call | None] = queue.SimpleQueue()
        self._idle = threading.Semaphore(0)
        self._lock = threading.Lock()
        self._begun = 0
        self._is_ended = False

    def submit(self, fn: Callable[_P, _T], /, *args: _P.args, **kwargs: _P.kwargs) -> Future[_T]:
        """Call a function in one of the threads; return the future of what it returns. Raises RuntimeError."""
        future: Future[_T] = Future()
        with self._lock:
            if self._is_ended:
                raise RuntimeError(f"the threads {self._name} have ended")
            self._calls.put((future, lambda: fn(*args, **kwargs)))
            if not self._idle.acquire(blocking=False) and self._begun < self._most:
                self._begun += 1
                threading.Thread(target=self._run, name=f"{self._name} {self._begun}", daemon=True).start()
        return future

    def end(self) -> None:
        """Let the threads end when they have done what was submitted. Waits for none."""
        with self._lock:
            self._is_ended = True
            for _ in range(self._begun):
                self._calls.put(None)

    def _run(self) -> None:
        while (call := self._calls.get()) is not None:
            future, function = call
            if future.set_running_or_notify_cancel():
                try:
                    future.set_result(function())
                except BaseException as failure:
                    future.set_exception(failure)
            del call, future, function
            self._idle.release()


class AsyncProducer:
    """A producer of one cluster; settings as `Producer` takes them. One event loop uses it at a time."""

    def __init__(self, config: Mapping[str, Any] | None = None, /, **settings: Any) -> None:
        self._producer = Producer(config, **settings)
        self._sending = DaemonThreads(_MOST_WAITING, f"{self._producer.client_id} send")
        self._calling = DaemonThreads(_MOST_WAITING, f"{self._producer.client_id} call")

    async def send(
        self,
        topic: str,
        value: Any = None,
        key: Any = None,
        headers: Headers | Mapping[str, bytes | None] | None = None,
        partition: int | None = None,
        timestamp_ms: int | None = None,
        on_delivery: DeliveryCallback | None = None,
    ) -> RecordFuture:
        """Put a record into a batch; return the future of its `RecordMetadata`, to be awaited.

        `on_delivery(metadata, error)` is called in the event loop. Raises as `Producer.send`.
        """
        if on_delivery is not None:
            on_delivery = _in_loop(asyncio.get_running_loop(), on_delivery)
        if key is None and headers is None and partition is None and type(value) is bytes:
            future = self._producer.append_value(topic, value, timestamp_ms, on_delivery)
            if future is not None:
                return future
        call = partial(self._producer.send, topic, value, key, headers, partition, timestamp_ms, on_delivery)
        if self._producer.may_block(topic, partition):
            return await asyncio.get_running_loop().run_in_executor(self._sending, call)
        return call()

    async def send_and_wait(self, topic: str, value: Any = None, **record: Any) -> RecordMetadata:
        """Send a record and wait until it is acknowledged. Raises what went wrong."""
        return await (await self.send(topic, value, **record))

    async def flush(self, timeout: float | None = None) -> None:
        """Send everything now, and wait for it (G35)."""
        await self._waited(self._producer.flush, timeout)

    async def partitions_for(self, topic: str) -> Sequence[PartitionMetadata]:
        """Return a topic's partitions."""
        return await self._waited(self._producer.partitions_for, topic)

    def metrics(self) -> Mapping[str, float]:
        """Return the metrics of Kafka's group producer-metrics by its names; times in milliseconds."""
        return self._producer.metrics()

    def topic_metrics(self) -> Mapping[str, Mapping[str, float]]:
        """Return those of producer-topic-metrics, by topic."""
        return self._producer.topic_metrics()

    def node_metrics(self) -> Mapping[int, Mapping[str, float]]:
        """Return those of producer-node-metrics, by broker."""
        return self._producer.node_metrics()

    @property
    def client_id(self) -> str:
        """Who this is for the brokers."""
        return self._producer.client_id

    async def close(self, timeout: float | None = None) -> None:
        """Send what is there and end (G36)."""
        closing = DaemonThreads(1, f"{self._producer.client_id} close")
        try:
            await asyncio.get_running_loop().run_in_executor(closing, self._producer.close, timeout)
            self._sending.end()
            self._calling.end()
        finally:
            closing.end()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, failure: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    async def init_transactions(self) -> None:
        """Get the producer id, and end what an earlier producer of the same transactional id has left."""
        await self._waited(self._producer.init_transactions)

    def begin_transaction(self) -> None:
        """Begin a transaction."""
        self._producer.begin_transaction()

    async def send_offsets_to_transaction(
        self, offsets: Mapping[TopicPartition, OffsetAndMetadata], group: ConsumerGroupMetadata
    ) -> None:
        """Commit what a consumer has read as part of the transaction."""
        await self._waited(self._producer.send_offsets_to_transaction, offsets, group)

    async def commit_transaction(self) -> None:
        """Send what is there, and commit."""
        await self._waited(self._producer.commit_transaction)

    async def abort_transaction(self) -> None:
        """Abort."""
        await self._waited(self._producer.abort_transaction)

    async def _waited(self, call: Callable[_P, _T], *args: _P.args, **kwargs: _P.kwargs) -> _T:
        return await asyncio.get_running_loop().run_in_executor(self._calling, partial(call, *args, **kwargs))


def _in_loop(loop: asyncio.AbstractEventLoop, callback: DeliveryCallback) -> DeliveryCallback:
    """Return a callback that has another called in an event loop."""

    def called(metadata: RecordMetadata, error: KafkaError | None) -> None:
        loop.call_soon_threadsafe(callback, metadata, error)

    return called
