"""The blocking producer: `send` appends a record to a batch and returns a future. Thread-safe.

HOT: `send`. If a batch of the topic is open, a record with only a value uses the fast path: append a few bytes, return
a future. Other records use `_send`: interceptors, metadata, serializers, partition, size, queue (G03).
"""

from __future__ import annotations

import logging
import os
import random
import threading
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from types import TracebackType
from typing import TYPE_CHECKING, Any, Final, NoReturn, Self
from weakref import WeakSet

from rotunda.broker.client.errors import (
    DeliveryTimeout,
    IllegalState,
    Interrupted,
    InvalidTopic,
    KafkaError,
    ProducerClosed,
    RecordTooLarge,
    SerializationFailed,
    error_of,
)
from rotunda.broker.client.network.addresses import parse_bootstrap
from rotunda.broker.client.network.metadata import ProducerMetadata
from rotunda.broker.client.network.network_client import NetworkClient
from rotunda.broker.client.network.selector import Selector
from rotunda.broker.client.producer.batches.buffer_pool import BufferPool
from rotunda.broker.client.producer.batches.producer_batch import NOT_OPEN, TimedValue
from rotunda.broker.client.producer.batches.record_layout import (
    check_topic,
    packed_headers,
    partition_of,
    timestamp_of,
    upper_bound_bytes,
)
from rotunda.broker.client.producer.config import ProducerConfig, read_config
from rotunda.broker.client.producer.futures import DeliveryCallback, FailedFuture, RecordFuture
from rotunda.broker.client.producer.interceptors import ProducerInterceptors, ProducerRecord
from rotunda.broker.client.producer.metrics import ProducerMetrics
from rotunda.broker.client.producer.partitioner import Partitioner, RoundRobinPartitioner, partition_for_key
from rotunda.broker.client.producer.sending.record_accumulator import RecordAccumulator
from rotunda.broker.client.producer.sending.sender import Sender
from rotunda.broker.client.producer.serializers import load, serialize_bytes, serialized, serializer_of
from rotunda.broker.client.producer.transactions.transaction_manager import TransactionManager
from rotunda.broker.client.producer.transactions.transaction_state import check_offsets
from rotunda.broker.client.topic_partition import TopicPartition
from rotunda.broker.clock import Clock, SystemClock
from rotunda.broker.errors import ConfigError
from rotunda.broker.records.record_batch import BATCH_HEADER_BYTES
from rotunda.broker.records.record_writer import Headers

if TYPE_CHECKING:
    from rotunda.broker.client.network.snapshot import ClusterSnapshot, PartitionMetadata
    from rotunda.broker.client.producer.transactions.transaction_state import (
        ConsumerGroupMetadata,
        OffsetAndMetadata,
        TransactionalRequestResult,
    )

_ROUND_ROBIN: Final = "RoundRobinPartitioner"


_LOG: Final = logging.getLogger(__name__)
#: Errors of the call itself, raised by `send`; all others are set on the future.
_RAISED: Final = (ProducerClosed, SerializationFailed, IllegalState, Interrupted)


class ProducerCore:
    """The parts of a producer and its I/O thread; the asyncio producer has the same.

    Creation sends nothing to the cluster (G02); if a part fails, the parts created before it are closed (G01).
    """

    def __init__(self, config: ProducerConfig, clock: Clock | None = None) -> None:
        settings = config.settings
        self.config = config
        self.clock = clock or SystemClock()
        self.key_serializer = serializer_of("key.serializer", settings.key_serializer)
        self.value_serializer = serializer_of("value.serializer", settings.value_serializer)
        self.partitioner = _partitioner(settings.partitioner_class)
        self.interceptors = ProducerInterceptors(settings.interceptor_classes)
        servers = parse_bootstrap(settings.bootstrap_servers, settings.client_dns_lookup)
        chance = random.Random()  # noqa: S311 - spreads load, guards nothing
        with ExitStack() as undo:
            self.metadata = ProducerMetadata(settings, chance, self.clock)
            self.metadata.bootstrap(servers)
            selector = Selector(settings, config.access, self.clock)
            undo.callback(selector.close)
            client = NetworkClient(selector, self.metadata, settings, self.clock, chance)
            self.transaction_manager = self._transaction_manager(client) if settings.enable_idempotence else None
            self.pool = BufferPool(settings.buffer_memory, self.clock)
            self.metrics = ProducerMetrics(self.pool, self.clock, selector, client, self.metadata)
            self.accumulator = RecordAccumulator(settings, self.pool, self.clock, self.transaction_manager, chance)
            self.sender = Sender(
                client,
                self.metadata,
                self.accumulator,
                self.transaction_manager,
                settings,
                self.metrics,
                self.clock,
            )
            self.thread = threading.Thread(
                target=self._run, name=f"kafka-producer-network-thread | {settings.client_id}", daemon=True
            )
            self.thread.start()
            self.pool.io_thread = self.thread.ident
            undo.pop_all()

    def _transaction_manager(self, client: NetworkClient) -> TransactionManager:
        settings = self.config.settings
        return TransactionManager(
            settings.transactional_id, settings.transaction_timeout_ms, settings.retry_backoff_ms, client.api_versions
        )

    def _run(self) -> None:
        try:
            self.sender.run()
        except BaseException:
            _LOG.exception("The I/O thread of producer %s has ended", self.config.settings.client_id)
            raise


def _partitioner(given: Any) -> Partitioner | None:
    if given is None:
        return None
    if isinstance(given, str):
        name = given.rpartition(".")[2]
        if name == _ROUND_ROBIN:
            return RoundRobinPartitioner()
        if ":" not in given:
            raise ConfigError(f"partitioner.class={given} is not known: name {_ROUND_ROBIN}, or give a function")
        given = load("partitioner.class", given)
    made = given() if isinstance(given, type) else given
    if not callable(made):
        raise ConfigError(f"partitioner.class={made!r} is no function")
    partitioner: Partitioner = made
    return partitioner


class Producer:
    """A producer of one cluster.

    Settings have Kafka's names: `Producer({"bootstrap.servers": "localhost:9092"})`, or with underscores for dots,
    `Producer(bootstrap_servers="localhost:9092", linger_ms=0)`. Raises ConfigError.
    """

    def __init__(self, config: Mapping[str, Any] | None = None, /, **settings: Any) -> None:
        named = {name.replace("_", "."): value for name, value in settings.items()}
        self._core = core = ProducerCore(read_config({**(config or {}), **named}))
        self._settings = core.config.settings
        self._accumulator = core.accumulator
        self._lanes = core.accumulator.lanes
        self._wall_ms = core.clock.wall_ms
        self._is_closed = self._is_forked = False
        self._is_plain = core.value_serializer is serialize_bytes and not core.interceptors and not core.partitioner
        if not self._is_plain or self._settings.batch_size > self._settings.max_request_size:
            # Always empty: every record uses the slow path, which also validates its size.
            self._lanes = {}
        _MADE.add(self)

    def was_forked(self) -> None:
        """Become unusable in a forked child: the I/O thread exists in the parent only."""
        self._is_closed = self._is_forked = True
        self._lanes = {}

    def send(
        self,
        topic: str,
        value: Any = None,
        key: Any = None,
        headers: Headers | Mapping[str, bytes | None] | None = None,
        partition: int | None = None,
        timestamp_ms: int | None = None,
        on_delivery: DeliveryCallback | None = None,
    ) -> RecordFuture:
        """Send a record; return the future of its `RecordMetadata`.

        Waits for metadata and for buffer memory up to `max.block.ms` (G06). `on_delivery(metadata, error)` is called on
        the I/O thread. Raises ProducerClosed, SerializationFailed and IllegalState, and TypeError or ValueError for an
        invalid topic, partition or timestamp; other errors are set on the future.
        """
        if key is None and headers is None and partition is None:
            if timestamp_ms is None and on_delivery is None:
                lane = self._lanes.get(topic)
                if lane is not None:
                    try:
                        return lane.send(value)
                    except NOT_OPEN:
                        pass
            else:
                future = self.append_value(topic, value, timestamp_ms, on_delivery)
                if future is not None:
                    return future
        pairs = tuple(headers.items()) if isinstance(headers, Mapping) else tuple(headers or ())
        return self._send(ProducerRecord(topic, value, key, pairs, partition, timestamp_ms), on_delivery)

    def append_value(
        self, topic: str, value: bytes, timestamp_ms: int | None, on_delivery: DeliveryCallback | None
    ) -> RecordFuture | None:
        """Send a record by the fast path. Return None if the path is not available; nothing was sent then."""
        lane = self._lanes.get(topic)
        if lane is None:
            return None
        time_ms = None if timestamp_ms is None else timestamp_of(timestamp_ms)
        try:
            return lane.send(TimedValue(value, time_ms, on_delivery))
        except NOT_OPEN:
            return None

    def may_block(self, topic: str, partition: int | None) -> bool:
        """Return whether `send` might wait for metadata or for buffer memory."""
        if self._is_closed:
            return False
        count = self._core.metadata.fetch().partition_count(topic)
        if count is None or (partition is not None and partition >= count):
            return True
        return self._core.pool.available_bytes < max(self._settings.batch_size, self._settings.max_request_size)

    def _send(self, record: ProducerRecord, on_delivery: DeliveryCallback | None) -> RecordFuture:
        interceptors = self._core.interceptors
        if interceptors:
            record = interceptors.on_send(record)
        callback = interceptors.around(on_delivery)
        try:
            return self._append(record, callback)
        except KafkaError as error:
            return self._failed(record, callback, error)

    def _failed(self, record: ProducerRecord, callback: DeliveryCallback | None, error: KafkaError) -> RecordFuture:
        """Raise an error of the call, or return the future of a record's error."""
        future = FailedFuture.of(record.topic, record.partition, error)
        if isinstance(error, _RAISED):
            self._core.interceptors.on_acknowledgement(future.metadata(), error)
            raise error
        if callback is not None:
            try:
                callback(future.metadata(), error)
            except Exception:
                _LOG.exception("A callback for a record that was not sent failed")
        if self._core.transaction_manager is not None:
            self._core.transaction_manager.maybe_transition_to_error_state(error)
        return future

    def _append(self, record: ProducerRecord, callback: DeliveryCallback | None) -> RecordFuture:
        self._check_open()
        core = self._core
        if core.transaction_manager is not None:
            core.transaction_manager.check_send()
        given_ms = None if record.timestamp_ms is None else timestamp_of(record.timestamp_ms)
        if record.partition is not None:
            record = record._replace(partition=partition_of(record.partition))
        now_ms = self._accumulator.now_ms()
        cluster, waited_ms = self._wait_on_metadata(record.topic, record.partition, now_ms)
        key = serialized(core.key_serializer, "key", record.topic, record.key, record.headers)
        value = serialized(core.value_serializer, "value", record.topic, record.value, record.headers)
        partition = self._partition(record, key, value, cluster)
        headers = packed_headers(record.topic, record.headers)
        self._check_size(upper_bound_bytes(key, value, headers) + BATCH_HEADER_BYTES)
        appended = self._accumulator.append(
            record.topic,
            partition,
            self._wall_ms() if given_ms is None else given_ms,
            key,
            value,
            headers,
            callback,
            max(0.0, self._settings.max_block_ms - waited_ms),
            now_ms + waited_ms,
            cluster,
        )
        if core.transaction_manager is not None:
            # Its batch is not drained before this; the partition may not have been known earlier.
            core.transaction_manager.maybe_add_partition(appended.partition)
        if appended.batch_is_full or appended.new_batch_created:
            core.sender.wakeup()
        return appended.future

    def _partition(
        self, record: ProducerRecord, key: bytes | None, value: bytes | None, cluster: ClusterSnapshot
    ) -> int | None:
        """Return a record's partition; None for the sticky one (G11)."""
        if record.partition is not None:
            if record.partition < 0:
                raise IllegalState(f"partition {record.partition} of {record.topic}: give a number of 0 or more")
            return record.partition
        if self._core.partitioner is not None:
            partition = partition_of(
                self._core.partitioner(record.topic, record.key, key, record.value, value, cluster)
            )
            if partition < 0:
                raise IllegalState(f"the partitioner has returned {partition}: a partition is 0 or more")
            return partition
        if key is not None and not self._settings.partitioner_ignore_keys:
            return partition_for_key(key, len(cluster.partitions_for(record.topic)))
        return None

    def _check_size(self, size_bytes: int) -> None:
        """Raise RecordTooLarge if a record exceeds the request limit or the buffer (G15)."""
        for name, most in (
            ("max.request.size", self._settings.max_request_size),
            ("buffer.memory", self._settings.buffer_memory),
        ):
            if size_bytes > most:
                raise RecordTooLarge(
                    f"a record of {size_bytes} uncompressed bytes exceeds {name}={most}: raise it, or send less"
                )

    def _wait_on_metadata(self, topic: str, partition: int | None, now_ms: float) -> tuple[ClusterSnapshot, float]:
        """Return the cluster with this topic and partition, and the waiting time (G05).

        Raises InvalidTopic, TopicAuthorizationFailed, DeliveryTimeout and ProducerClosed.
        """
        metadata = self._core.metadata
        cluster = metadata.fetch()
        if topic in cluster.invalid_topics:
            raise InvalidTopic(f"{topic!r} is not a valid topic name")
        count = cluster.partition_count(topic)
        if count is None:
            check_topic(topic)
        metadata.add(topic, now_ms)
        waited_ms, max_wait_ms = 0.0, self._settings.max_block_ms
        while count is None or (partition is not None and partition >= count):
            if self._is_in_callback():
                max_wait_ms = 0
            missing = (
                f"topic {topic}" if count is None else f"partition {partition} of topic {topic}, which has {count},"
            )
            metadata.add(topic, now_ms + waited_ms)
            version = metadata.request_update_for_topic(topic)
            self._core.sender.wakeup()
            try:
                metadata.await_update(version, max(0.0, max_wait_ms - waited_ms))
            except DeliveryTimeout as failure:
                self._raise_missing(missing, topic, max_wait_ms, failure)
            cluster = metadata.fetch()
            waited_ms = self._accumulator.now_ms() - now_ms
            count = cluster.partition_count(topic)
            is_known = count is not None and (partition is None or partition < count)
            if waited_ms >= max_wait_ms and not is_known:
                self._raise_missing(missing, topic, max_wait_ms, None)
            metadata.raise_error_for_topic(topic)
        return cluster, waited_ms

    def _raise_missing(self, what: str, topic: str, waited_ms: float, failure: KafkaError | None) -> NoReturn:
        code = self._core.metadata.error_of_topic(topic)
        because = str(error_of(code)) if code else "is the cluster at bootstrap.servers reachable?"
        if self._is_in_callback():
            because = "a callback cannot wait for it: it runs on the thread that fetches it"
        elif not code and self._core.metadata.fetch().partition_count(topic) is not None:
            because = "the first partition is 0"
        raise DeliveryTimeout(f"{what} is not in the metadata after {waited_ms:.0f} ms: {because}") from failure

    def _check_open(self) -> None:
        if self._is_forked:
            raise ProducerClosed("the producer was made before this process was forked: make another here")
        if self._is_closed or not self._core.sender.is_running:
            raise ProducerClosed("the producer has been closed: make another")

    def _is_in_callback(self) -> bool:
        """Return whether this is the I/O thread, which would wait for itself."""
        return threading.get_ident() == self._core.thread.ident

    def _reject_in_callback(self, call: str) -> None:
        """Raise IllegalState on the I/O thread, which would wait for itself."""
        if self._is_in_callback():
            raise IllegalState(
                f"{call}() in a callback would wait for the thread that calls callbacks: call it in a thread of the "
                "application"
            )

    def flush(self, timeout: float | None = None) -> None:
        """Send all buffered records immediately and wait until they are acknowledged or failed (G35).

        Raises TimeoutError after `timeout` seconds; the records are still being sent then. Raises IllegalState in a
        callback (KIP-1118).
        """
        self._reject_in_callback("flush")
        if self._is_forked:
            self._check_open()
        self._accumulator.begin_flush()
        self._core.sender.wakeup()
        self._accumulator.await_flush_completion(timeout)

    def partitions_for(self, topic: str) -> Sequence[PartitionMetadata]:
        """Return a topic's partitions; waits for metadata. Raises the errors that `send` sets on its future."""
        self._check_open()
        cluster, _ = self._wait_on_metadata(topic, None, self._accumulator.now_ms())
        return cluster.partitions_for(topic)

    def metrics(self) -> Mapping[str, float]:
        """Return the metrics of Kafka's group producer-metrics by name; times in milliseconds."""
        return self._core.metrics.read()

    def topic_metrics(self) -> Mapping[str, Mapping[str, float]]:
        """Return the metrics of producer-topic-metrics, for topics with sent or failed batches."""
        return self._core.metrics.read_topics()

    def node_metrics(self) -> Mapping[int, Mapping[str, float]]:
        """Return the metrics of producer-node-metrics, by broker; the bootstrap servers have negative ids."""
        return self._core.metrics.read_nodes()

    @property
    def client_id(self) -> str:
        """The `client.id`."""
        return self._settings.client_id

    def close(self, timeout: float | None = None) -> None:
        """Send the buffered records and close; after `timeout` seconds the unsent ones fail (G36). Idempotent.

        In a callback it does not wait: unsent records fail immediately.
        """
        if timeout is not None and timeout < 0:
            raise ValueError(f"a timeout of {timeout} s is negative")
        if self._is_forked:
            return  # it keeps running in the parent
        core, from_callback = self._core, self._is_in_callback()
        if from_callback:
            _LOG.warning("close() from a callback of producer %s does not wait", self.client_id)
        elif timeout != 0:
            core.sender.initiate_close()
            core.thread.join(timeout)
        if core.thread.is_alive():
            core.sender.force_close()
            if not from_callback:
                core.thread.join()
        if not self._is_closed:
            self._is_closed = True
            core.interceptors.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, failure: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    # Transactions.

    def init_transactions(self) -> None:
        """Get the producer id, and complete transactions of an earlier producer with the same transactional id.

        Must be called once, before any other call.
        """
        self._finish(self._transactions("init_transactions").initialize_transactions())

    def begin_transaction(self) -> None:
        """Begin a transaction. Raises IllegalState, and ProducerFenced if another producer uses the id."""
        self._transactions().begin_transaction()

    def send_offsets_to_transaction(
        self, offsets: Mapping[TopicPartition, OffsetAndMetadata], group: ConsumerGroupMetadata
    ) -> None:
        """Commit consumed offsets as part of the transaction. Raises TypeError and ValueError if they are invalid."""
        manager = self._transactions("send_offsets_to_transaction")
        check_offsets(offsets, group)
        if offsets:
            self._finish(manager.send_offsets_to_transaction(offsets, group))

    def commit_transaction(self) -> None:
        """Send the buffered records, then commit. After a DeliveryTimeout the result is unknown: call it again."""
        self._finish(self._transactions("commit_transaction").begin_commit())

    def abort_transaction(self) -> None:
        """Abort the transaction; unsent records fail."""
        self._finish(self._transactions("abort_transaction").begin_abort())

    def _transactions(self, waiting_call: str = "") -> TransactionManager:
        self._check_open()
        if waiting_call:
            self._reject_in_callback(waiting_call)
        manager = self._core.transaction_manager
        if manager is None or not manager.is_transactional:
            raise IllegalState("this producer has no transactions: set transactional.id")
        return manager

    def _finish(self, result: TransactionalRequestResult) -> None:
        self._core.sender.wakeup()
        result.wait(self._settings.max_block_ms, "Call it again to continue waiting, or close the producer.")


_MADE: Final[WeakSet[Producer]] = WeakSet()


def _in_child() -> None:
    for each in list(_MADE):
        each.was_forked()


os.register_at_fork(after_in_child=_in_child)
