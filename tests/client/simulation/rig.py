"""A producer's real parts, the Sender's own loop included, between a simulated network and a simulated application.

The application is a generator. All runs inside `Sender.run`: its steps happen while the network is polled.
"""

from __future__ import annotations

import logging
import random
from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import cast

from rotunda.broker.client.errors import BufferExhausted, KafkaError
from rotunda.broker.client.network.addresses import Address, HostAndPort
from rotunda.broker.client.network.metadata import ProducerMetadata
from rotunda.broker.client.network.network_client import NetworkClient
from rotunda.broker.client.producer.batches.buffer_pool import BufferPool
from rotunda.broker.client.producer.batches.producer_batch import ProducerBatch
from rotunda.broker.client.producer.config import ProducerSettings
from rotunda.broker.client.producer.futures import RecordFuture, RecordMetadata
from rotunda.broker.client.producer.metrics import ProducerMetrics
from rotunda.broker.client.producer.sending.record_accumulator import RecordAccumulator
from rotunda.broker.client.producer.sending.sender import Sender
from rotunda.broker.client.producer.transactions.transaction_manager import TransactionManager
from rotunda.broker.client.producer.transactions.transaction_state import TransactionalRequestResult
from rotunda.broker.client.topic_partition import TopicPartition
from rotunda.broker.protocol.error_codes import ErrorCode
from tests.client.simulation.clock import SimulatedClock
from tests.client.simulation.cluster import Cluster, ClusterConfig
from tests.client.simulation.network import SimulatedNetwork, Weather

Steps = Generator["float | TransactionalRequestResult", None, None]
NO_HEADERS = b"\x00"


@dataclass
class Sent:
    """A record that the application has sent, and its outcome."""

    value: bytes
    partition: int
    appended_ms: float
    future: RecordFuture | None = None
    settled_ms: float | None = None
    error: KafkaError | None = None
    offset: int = -1
    sent_ms: int = -1
    """Its timestamp."""
    timestamp_ms: int = -1
    """The one reported with its outcome."""
    times_settled: int = 0

    def settle(self, clock: SimulatedClock, metadata: RecordMetadata, error: KafkaError | None) -> None:
        self.times_settled += 1
        self.settled_ms, self.error = clock.now_ms, error
        self.offset, self.timestamp_ms = metadata.offset, metadata.timestamp_ms


@dataclass
class CountingMetrics:
    """The producer's metrics, of records and splits alone."""

    sent: int = 0
    retried: int = 0
    failed: int = 0
    splits: int = 0
    throttled_ms: list[float] = field(default_factory=list)

    def record_sent(self, batches: Sequence[ProducerBatch]) -> None:
        self.sent += sum(batch.record_count for batch in batches)

    def record_latency(self, node_id: int, latency_ms: float) -> None: ...

    def record_throttle(self, throttle_ms: float) -> None:
        self.throttled_ms.append(throttle_ms)

    def record_retries(self, topic: str, records: int) -> None:
        assert topic
        self.retried += records

    def record_errors(self, topic: str, records: int) -> None:
        assert topic
        self.failed += records

    def record_split(self) -> None:
        self.splits += 1


class Unexpected(logging.Handler):
    """Collects the client's log messages about its own mistakes."""

    def __init__(self) -> None:
        super().__init__(logging.ERROR)
        self.texts: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.texts.append(logging.Formatter().format(record))


@dataclass(frozen=True, kw_only=True)
class RigConfig(ProducerSettings):
    """The settings of the producer, with times short enough for a simulated minute."""

    client_id: str = "simulated"
    batch_size: int = 400
    buffer_memory: int = 100_000
    request_timeout_ms: int = 2000
    delivery_timeout_ms: int = 8000
    retry_backoff_ms: int = 20
    retry_backoff_max_ms: int = 300
    reconnect_backoff_ms: int = 20
    reconnect_backoff_max_ms: int = 200
    socket_connection_setup_timeout_ms: int = 1000
    socket_connection_setup_timeout_max_ms: int = 3000
    metadata_max_age_ms: int = 5000


class Rig:
    """A producer, its cluster, its network and its clock."""

    def __init__(
        self,
        chance: random.Random,
        config: RigConfig,
        cluster: ClusterConfig,
        shared: tuple[SimulatedClock, Cluster] | None = None,
    ) -> None:
        self.chance = chance
        self.config = config
        self.clock, self.cluster = shared or (SimulatedClock(), Cluster(cluster, self._later, chance))
        self.network = SimulatedNetwork(self.clock, self.cluster, chance, Weather())
        self.metadata = ProducerMetadata(config, chance, self.clock)
        self.metadata.bootstrap([HostAndPort(f"broker{node}", 9092) for node in range(self.cluster.config.nodes)])
        self.client = NetworkClient(
            self.network, self.metadata, config, self.clock, chance, lambda host: [Address(2, host)]
        )
        self.transactions = (
            TransactionManager(config.transactional_id, 60_000, config.retry_backoff_ms, self.client.api_versions)
            if config.enable_idempotence
            else None
        )
        self.accumulator = RecordAccumulator(
            config,
            BufferPool(config.buffer_memory, self.clock),
            self.clock,
            self.transactions,
            chance,
        )
        self.metrics = CountingMetrics()
        self.sender = Sender(
            self.client,
            self.metadata,
            self.accumulator,
            self.transactions,
            config,
            cast("ProducerMetrics", self.metrics),
            self.clock,
        )
        self.records: list[Sent] = []
        self.failure: Exception | None = None
        """What the application did not expect."""

    def _later(self, event: Callable[[], None]) -> None:
        self.clock.at(self.chance.uniform(1, 60), event)

    def run(self, application: Steps, *, closes: bool = True) -> None:
        """Run the application, then close the producer and wait for its end. Its own mistakes are failures."""
        unexpected = Unexpected()
        logger = logging.getLogger("rotunda.broker.client")
        logger.addHandler(unexpected)
        try:
            self.start(application, closes=closes)
            self.sender.run()
        finally:
            logger.removeHandler(unexpected)
        assert unexpected.texts == []
        if self.failure is not None:
            raise self.failure

    def start(self, application: Steps, *, closes: bool = True) -> None:
        """Run the application from step to step as its waits end; close the producer after the last."""

        def step() -> None:
            try:
                wait = next(application)
            except StopIteration:
                if closes:
                    self.sender.initiate_close()
                return
            except Exception as failure:
                self.failure = failure
                self.sender.force_close()
                return
            if isinstance(wait, TransactionalRequestResult):
                self.sender.wakeup()
                wait.add_done_callback(partial(self.clock.at, 0.01, step))
            else:
                self.clock.at(wait, step)

        self.clock.at(0.01, step)

    def send(self, partition: int, value: bytes) -> Generator[float, None, Sent]:
        """Send a record, as `Producer.send` does but without holding the thread. Raises KafkaError."""
        while True:
            self.metadata.add("events", self.clock.now_ms)
            cluster = self.metadata.fetch()
            if cluster.partition_count("events"):
                break
            self.sender.wakeup()
            yield 10.0
        record = Sent(value, partition, self.clock.now_ms)
        callback = partial(record.settle, self.clock)
        while True:
            now_ms, record.sent_ms = self.clock.now_ms, self.clock.wall_ms()
            try:
                appended = self.accumulator.append(
                    "events", partition, record.sent_ms, None, value, NO_HEADERS, callback, 0, now_ms, cluster
                )
                break
            except BufferExhausted:
                yield 20.0
        record.appended_ms = self.clock.now_ms
        record.future = appended.future
        self.records.append(record)
        if self.transactions is not None:
            self.transactions.maybe_add_partition(TopicPartition("events", partition))
        if appended.batch_is_full or appended.new_batch_created:
            self.sender.wakeup()
        return record

    def near_the_last_sequence(self, partition: int, left: int) -> None:
        """Leave both sides `left` sequences until these restart at 0, unless a batch is in flight."""
        assert self.transactions is not None
        place = TopicPartition("events", partition)
        entry = self.transactions._partitions.get(place)
        log = self.cluster.logs[place]
        known = None if entry is None else log.producers.get(entry.producer_id_and_epoch.producer_id)
        if entry is None or known is None or entry.in_flight or not known.batches:
            return
        first, last, offset = known.batches[-1]
        if (known.epoch, last) == (entry.producer_id_and_epoch.epoch, entry.last_acked_sequence):
            entry.next_sequence = (1 << 31) - left
            entry.last_acked_sequence = entry.next_sequence - 1
            # Earlier batches have numbers that return soon, which they do not after so many.
            known.batches.clear()
            known.batches.append((entry.last_acked_sequence - (last - first), entry.last_acked_sequence, offset))

    # Faults.

    def disturb(self, until_ms: float) -> None:
        """Start a storm that lasts until then: faults of all kinds, at a rate of its own."""
        chance = self.chance
        severity = chance.choice((0.2, 1.0, 3.0))
        self.network.weather = Weather(
            delay_ms=chance.choice((1, 5, 50)),
            slow=chance.choice((0, 0.05, 0.2)),
            slow_ms=chance.choice((100, 1000, 5000)),
            blocked_write=chance.choice((0, 0.1)),
            refused_connection=0.1 * severity * chance.random(),
            cut=0.03 * severity * chance.random(),
            lost_answer=0.01 * severity * chance.random(),
            late=chance.random(),
            late_ms=chance.choice((10, 500, 5000)),
        )
        refusals = 0.1 * severity * chance.random()
        errors = (
            ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
            ErrorCode.COORDINATOR_NOT_AVAILABLE,
            ErrorCode.CONCURRENT_TRANSACTIONS,
        )
        self.cluster.refuse = lambda _api: chance.choice(errors) if chance.random() < refusals else 0
        self.cluster.append_errors = 0.05 * severity * chance.random()
        mean_ms = chance.choice((300, 1000, 4000)) / severity
        self.clock.at(chance.expovariate(1 / mean_ms), partial(self._strike, mean_ms, until_ms))
        self.clock.at(until_ms - self.clock.now_ms, self.calm)

    def let_arrive_what_is_late(self) -> None:
        """Deliver everything that is still in flight in the network."""
        self.calm()
        while self.clock.next_event_ms is not None:
            self.clock.now_ms = max(self.clock.now_ms, self.clock.next_event_ms)
            self.clock.run_due()

    def calm(self) -> None:
        """End all faults."""
        self.network.weather = Weather()
        self.cluster.refuse = lambda _api: 0
        self.cluster.append_errors = 0.0
        self.cluster.is_up = dict.fromkeys(self.cluster.is_up, True)

    def _strike(self, mean_ms: float, until_ms: float) -> None:
        if self.clock.now_ms >= until_ms:
            return
        nodes = list(self.cluster.is_up)
        node = self.chance.choice(nodes)
        kind = self.chance.randrange(4)
        if kind == 0:
            self.network.cut_all(self.chance.choice([None, *nodes]))
        elif kind == 1:
            self.cluster.is_up[node] = False
            self.network.cut_all(node)
            self.clock.at(self.chance.uniform(10, 3000), partial(self.cluster.is_up.__setitem__, node, True))
        elif kind == 2:
            self.cluster.move_leader(self.chance.choice(list(self.cluster.leaders)), node)
        else:
            self.cluster.coordinator_node = node
        self.clock.at(self.chance.expovariate(1 / mean_ms), partial(self._strike, mean_ms, until_ms))
