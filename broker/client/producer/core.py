"""Creates the parts of a producer and its I/O thread from a configuration.

The blocking and the asyncio producer share one `ProducerCore`. Creation sends nothing to the cluster (G02); if a part
fails, the parts created before it are closed (G01).
"""

from __future__ import annotations

import logging
import random
import threading
from contextlib import ExitStack
from typing import Any, Final

from rotunda.broker.client.network.addresses import parse_bootstrap
from rotunda.broker.client.network.metadata import ProducerMetadata
from rotunda.broker.client.network.network_client import NetworkClient
from rotunda.broker.client.network.network_config import NetworkConfig
from rotunda.broker.client.network.selector import Selector
from rotunda.broker.client.producer.batches.buffer_pool import BufferPool
from rotunda.broker.client.producer.batches.record_accumulator import RecordAccumulator
from rotunda.broker.client.producer.batches.record_queues import AccumulatorConfig
from rotunda.broker.client.producer.config import ProducerConfig
from rotunda.broker.client.producer.interceptors import ProducerInterceptors
from rotunda.broker.client.producer.metrics import ProducerMetrics
from rotunda.broker.client.producer.partitioner import Partitioner, RoundRobinPartitioner
from rotunda.broker.client.producer.sending.sender import Sender, SenderConfig
from rotunda.broker.client.producer.serializers import load, serializer_of
from rotunda.broker.client.producer.transactions.transaction_manager import TransactionManager
from rotunda.broker.clock import Clock, SystemClock
from rotunda.broker.errors import ConfigError

_LOG: Final = logging.getLogger(__name__)
_NETWORK_FIELDS: Final = tuple(NetworkConfig.__slots__)
_ROUND_ROBIN: Final = "RoundRobinPartitioner"


class ProducerCore:
    """The parts of a producer."""

    def __init__(self, config: ProducerConfig, clock: Clock | None = None) -> None:
        settings = config.settings
        self.config = config
        self.clock = clock or SystemClock()
        self.key_serializer = serializer_of("key.serializer", settings.key_serializer)
        self.value_serializer = serializer_of("value.serializer", settings.value_serializer)
        self.partitioner = _partitioner(settings.partitioner_class)
        self.interceptors = ProducerInterceptors(settings.interceptor_classes)
        servers = parse_bootstrap(settings.bootstrap_servers, settings.client_dns_lookup)
        network = NetworkConfig(**{name: getattr(settings, name) for name in _NETWORK_FIELDS})
        chance = random.Random()  # noqa: S311 - spreads load, guards nothing
        with ExitStack() as undo:
            self.metadata = ProducerMetadata(network, chance, self.clock)
            self.metadata.bootstrap(servers)
            selector = Selector(network, config.access, self.clock)
            undo.callback(selector.close)
            client = NetworkClient(selector, self.metadata, network, self.clock, chance)
            self.transaction_manager = self._transaction_manager(client) if settings.enable_idempotence else None
            self.pool = BufferPool(settings.buffer_memory, self.clock)
            self.metrics = ProducerMetrics(self.pool, self.clock, selector, client, self.metadata)
            self.accumulator = RecordAccumulator(
                _accumulator_config(config), self.pool, self.clock, self.transaction_manager, chance
            )
            self.sender = Sender(
                client,
                self.metadata,
                self.accumulator,
                self.transaction_manager,
                _sender_config(config),
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


def _accumulator_config(config: ProducerConfig) -> AccumulatorConfig:
    settings = config.settings
    return AccumulatorConfig(
        batch_size=settings.batch_size,
        compression=config.compression,
        linger_ms=settings.linger_ms,
        retry_backoff_ms=settings.retry_backoff_ms,
        retry_backoff_max_ms=settings.retry_backoff_max_ms,
        delivery_timeout_ms=settings.delivery_timeout_ms,
        partitioner_adaptive_partitioning_enable=settings.partitioner_adaptive_partitioning_enable,
        partitioner_availability_timeout_ms=settings.partitioner_availability_timeout_ms,
    )


def _sender_config(config: ProducerConfig) -> SenderConfig:
    settings = config.settings
    return SenderConfig(
        acks=config.acks,
        retries=settings.retries,
        max_request_size=settings.max_request_size,
        request_timeout_ms=settings.request_timeout_ms,
        retry_backoff_ms=settings.retry_backoff_ms,
        guarantee_message_order=settings.max_in_flight_requests_per_connection == 1,
    )
