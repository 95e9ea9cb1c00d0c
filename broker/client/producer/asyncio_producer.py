"""The asyncio producer: the same core as `Producer`, without blocking the event loop.

If a batch is open, a record uses the fast path of `Producer.send`. Calls that may wait for metadata, buffer memory or
the broker run in the producer's own threads: they do not delay other users of the loop's executor, nor the end of the
loop and of the process. `send` has its own threads, so that blocked sends do not delay other calls. Awaiting futures
costs one wake-up per batch and event loop.
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
from rotunda.broker.client.producer.futures import DeliveryCallback, RecordFuture, RecordMetadata
from rotunda.broker.client.producer.producer import Producer
from rotunda.broker.client.topic_partition import TopicPartition
from rotunda.broker.records.record_writer import Headers

if TYPE_CHECKING:
    from rotunda.broker.client.network.snapshot import PartitionMetadata
    from rotunda.broker.client.producer.transactions.transaction_state import ConsumerGroupMetadata, OffsetAndMetadata

_P = ParamSpec("_P")
_T = TypeVar("_T")
_Call = tuple["Future[Any]", Callable[[], Any]]
#: Records that may wait for metadata or buffer memory at a time; further ones queue.
_MOST_WAITING: Final = 16


class DaemonThreads(Executor):
    """An executor of daemon threads, started on demand up to a limit; further calls are queued."""

    def __init__(self, most: int, name: str) -> None:
        self._most = most
        self._name = name
        self._calls: queue.SimpleQueue[_Call | None] = queue.SimpleQueue()
        self._idle = threading.Semaphore(0)
        self._lock = threading.Lock()
        self._begun = 0
        self._is_ended = False

    def submit(self, fn: Callable[_P, _T], /, *args: _P.args, **kwargs: _P.kwargs) -> Future[_T]:
        """Run a function in one of the threads; return the future of its result. Raises RuntimeError after `end`."""
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
        """Stop the threads after the submitted calls, without waiting for them."""
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
    """A producer of one cluster, with the settings of `Producer`. Used by one event loop at a time."""

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
        """Append a record to a batch; return an awaitable future of its `RecordMetadata`.

        `on_delivery(metadata, error)` is called in the event loop. Raises the same exceptions as `Producer.send`.
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
        """Send a record and wait for its acknowledgement. Raises the delivery error."""
        return await (await self.send(topic, value, **record))

    async def flush(self, timeout: float | None = None) -> None:
        """Send all buffered records immediately and wait for them (G35)."""
        await self._waited(self._producer.flush, timeout)

    async def partitions_for(self, topic: str) -> Sequence[PartitionMetadata]:
        """Return a topic's partitions."""
        return await self._waited(self._producer.partitions_for, topic)

    def metrics(self) -> Mapping[str, float]:
        """Return the metrics of Kafka's group producer-metrics by name; times in milliseconds."""
        return self._producer.metrics()

    def topic_metrics(self) -> Mapping[str, Mapping[str, float]]:
        """Return the metrics of producer-topic-metrics, by topic."""
        return self._producer.topic_metrics()

    def node_metrics(self) -> Mapping[int, Mapping[str, float]]:
        """Return the metrics of producer-node-metrics, by broker."""
        return self._producer.node_metrics()

    @property
    def client_id(self) -> str:
        """The `client.id`."""
        return self._producer.client_id

    async def close(self, timeout: float | None = None) -> None:
        """Send the buffered records, then close (G36)."""
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
        """Get the producer id, and complete transactions of an earlier producer with the same transactional id."""
        await self._waited(self._producer.init_transactions)

    def begin_transaction(self) -> None:
        """Begin a transaction."""
        self._producer.begin_transaction()

    async def send_offsets_to_transaction(
        self, offsets: Mapping[TopicPartition, OffsetAndMetadata], group: ConsumerGroupMetadata
    ) -> None:
        """Commit consumed offsets as part of the transaction."""
        await self._waited(self._producer.send_offsets_to_transaction, offsets, group)

    async def commit_transaction(self) -> None:
        """Send the buffered records, then commit."""
        await self._waited(self._producer.commit_transaction)

    async def abort_transaction(self) -> None:
        """Abort the transaction."""
        await self._waited(self._producer.abort_transaction)

    async def _waited(self, call: Callable[_P, _T], *args: _P.args, **kwargs: _P.kwargs) -> _T:
        return await asyncio.get_running_loop().run_in_executor(self._calling, partial(call, *args, **kwargs))


def _in_loop(loop: asyncio.AbstractEventLoop, callback: DeliveryCallback) -> DeliveryCallback:
    """Return a callback that schedules `callback` in the event loop."""

    def called(metadata: RecordMetadata, error: KafkaError | None) -> None:
        loop.call_soon_threadsafe(callback, metadata, error)

    return called
