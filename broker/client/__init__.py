"""Kafka clients: the producer API for programs, the requests of the command line, and client security.

Programs use `from rotunda.broker.client import Producer, AsyncProducer`. The exported classes are loaded lazily, since
the commands do not need them. Errors are in `rotunda.broker.client.errors`.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from rotunda.broker.client.producer.asyncio_producer import AsyncProducer
    from rotunda.broker.client.producer.futures import RecordMetadata
    from rotunda.broker.client.producer.interceptors import ProducerRecord
    from rotunda.broker.client.producer.producer import Producer
    from rotunda.broker.client.producer.transactions.transaction_state import ConsumerGroupMetadata, OffsetAndMetadata
    from rotunda.broker.client.topic_partition import TopicPartition

__all__ = [
    "AsyncProducer",
    "ConsumerGroupMetadata",
    "OffsetAndMetadata",
    "Producer",
    "ProducerRecord",
    "RecordMetadata",
    "TopicPartition",
]

_MODULES: Final = {
    "AsyncProducer": "rotunda.broker.client.producer.asyncio_producer",
    "ConsumerGroupMetadata": "rotunda.broker.client.producer.transactions.transaction_state",
    "OffsetAndMetadata": "rotunda.broker.client.producer.transactions.transaction_state",
    "Producer": "rotunda.broker.client.producer.producer",
    "ProducerRecord": "rotunda.broker.client.producer.interceptors",
    "RecordMetadata": "rotunda.broker.client.producer.futures",
    "TopicPartition": "rotunda.broker.client.topic_partition",
}


def __getattr__(name: str) -> Any:
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(_MODULES[name]), name)
