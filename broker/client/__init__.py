"""Kafka clients: the producer that programs use, what the command line asks a broker, and how a client gets in.

`from broker.client import Producer, AsyncProducer` is what a program writes; they are loaded when they are named, and
the commands do without them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from broker.client.producer.asyncio_producer import AsyncProducer
    from broker.client.producer.producer import Producer

__all__ = ["AsyncProducer", "Producer"]


def __getattr__(name: str) -> Any:
    if name == "Producer":
        from broker.client.producer.producer import Producer  # noqa: PLC0415

        return Producer
    if name == "AsyncProducer":
        from broker.client.producer.asyncio_producer import AsyncProducer  # noqa: PLC0415

        return AsyncProducer
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
