"""Client libraries for the producer load: Rotunda's own, and others if installed.

Each accepts settings by Kafka's names; library-specific names are translated.
"""

from __future__ import annotations

import asyncio
import importlib
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any, Final

from rotunda.broker.bench.producer_load import (
    Acknowledged,
    AsyncLoadClient,
    Figures,
    LoadClient,
    Plan,
    drive,
    drive_async,
)
from rotunda.broker.client import AsyncProducer, Producer
from rotunda.broker.clock import Clock
from rotunda.broker.errors import UsageError

_FLUSH_S: Final = 3600.0
_ROOM_S: Final = 0.01
_AIOKAFKA_NAMES: Final = {"batch.size": "max_batch_size", "max.request.size": "max_request_size"}


class RotundaClient:
    """Rotunda's own producer."""

    def __init__(self, topic: str, settings: Mapping[str, str]) -> None:
        self._producer = Producer(settings)
        self._topic = topic
        self.flush = self._producer.flush
        self.close = self._producer.close

    def send(self, value: bytes, acknowledged: Acknowledged | None) -> None:
        """Send a record."""
        if acknowledged is None:
            self._producer.send(self._topic, value)
        else:
            self._producer.send(self._topic, value, on_delivery=lambda _, error: acknowledged(error))


class ConfluentClient:
    """confluent-kafka, based on librdkafka."""

    def __init__(self, topic: str, settings: Mapping[str, str]) -> None:
        self._producer = _module("confluent_kafka", "confluent-kafka").Producer(dict(settings))
        self._topic = topic

    def send(self, value: bytes, acknowledged: Acknowledged | None) -> None:
        """Send a record; wait for space if the queue is full."""
        while True:
            try:
                if acknowledged is None:
                    self._producer.produce(self._topic, value)
                else:
                    self._producer.produce(self._topic, value, on_delivery=lambda error, _: acknowledged(error))
                    self._producer.poll(0)
                return
            except BufferError:
                self._producer.poll(_ROOM_S)

    def flush(self) -> None:
        """Wait until all records are acknowledged."""
        self._producer.flush(_FLUSH_S)

    def close(self) -> None:
        """Close: the library does so when the object is freed."""
        self._producer = None


class KafkaPythonClient:
    """kafka-python."""

    def __init__(self, topic: str, settings: Mapping[str, str]) -> None:
        module = _module("kafka", "kafka-python")
        self._producer = module.KafkaProducer(**_as_arguments(settings, {}))
        self._topic = topic
        self._not_done: type[Exception] = module.errors.UnknownError

    def send(self, value: bytes, acknowledged: Acknowledged | None) -> None:
        """Send a record."""
        future = self._producer.send(self._topic, value)
        if acknowledged is not None:
            future.add_both(lambda outcome: acknowledged(outcome if isinstance(outcome, Exception) else None))

    def flush(self) -> None:
        """Wait until all records are acknowledged or have failed."""
        while True:
            # The library may wake shortly before a future is done, and report that as an error.
            with suppress(self._not_done):
                self._producer.flush()
                return

    def close(self) -> None:
        """Close the producer."""
        self.flush()
        self._producer.close()


class AiokafkaClient:
    """aiokafka."""

    def __init__(self, topic: str, settings: Mapping[str, str]) -> None:
        module = _module("aiokafka", "aiokafka")
        self._topic = topic
        self._producer = module.AIOKafkaProducer(**_as_arguments(settings, _AIOKAFKA_NAMES))

    async def start(self) -> None:
        """Connect."""
        await self._producer.start()

    async def send(self, value: bytes, acknowledged: Acknowledged | None) -> None:
        """Send a record."""
        future = await self._producer.send(self._topic, value)
        if acknowledged is not None:
            future.add_done_callback(lambda done: acknowledged(done.exception()))

    async def flush(self) -> None:
        """Wait until all records are acknowledged."""
        await self._producer.flush()

    async def close(self) -> None:
        """Close the producer."""
        await self._producer.stop()


class RotundaAsyncClient:
    """Rotunda's own asyncio producer."""

    def __init__(self, topic: str, settings: Mapping[str, str]) -> None:
        self._producer = AsyncProducer(settings)
        self._topic = topic
        self.flush = self._producer.flush
        self.close = self._producer.close

    async def start(self) -> None:
        """Do nothing: it connects on first use."""

    async def send(self, value: bytes, acknowledged: Acknowledged | None) -> None:
        """Send a record."""
        if acknowledged is None:
            await self._producer.send(self._topic, value)
        else:
            await self._producer.send(self._topic, value, on_delivery=lambda _, error: acknowledged(error))


_SYNC: Final[Mapping[str, Callable[[str, Mapping[str, str]], LoadClient]]] = {
    "rotunda": RotundaClient,
    "confluent-kafka": ConfluentClient,
    "kafka-python": KafkaPythonClient,
}
_ASYNC: Final[Mapping[str, Callable[[str, Mapping[str, str]], AsyncLoadClient]]] = {
    "rotunda-asyncio": RotundaAsyncClient,
    "aiokafka": AiokafkaClient,
}
NAMES: Final = (*_SYNC, *_ASYNC)


def run_load(
    name: str, settings: Mapping[str, str], plan: Plan, clock: Clock, report: Callable[[Figures], None]
) -> Figures:
    """Run a load with the named library. Raises UsageError if it is not installed or rejects a setting."""
    if name in _ASYNC:
        return asyncio.run(_run_async(_ASYNC[name], settings, plan, clock, report))
    client = _SYNC[name](plan.topic, settings)
    try:
        return drive(client, plan, clock, report)
    finally:
        client.close()


async def _run_async(
    kind: Callable[[str, Mapping[str, str]], AsyncLoadClient],
    settings: Mapping[str, str],
    plan: Plan,
    clock: Clock,
    report: Callable[[Figures], None],
) -> Figures:
    client = kind(plan.topic, settings)
    await client.start()
    try:
        return await drive_async(client, plan, clock, report)
    finally:
        await client.close()


def _module(name: str, package: str) -> Any:
    try:
        return importlib.import_module(name)
    except ImportError as failure:
        raise UsageError(f"--client {package} is not installed here: pip install {package}") from failure


def _as_arguments(settings: Mapping[str, str], names: Mapping[str, str]) -> dict[str, Any]:
    """Convert settings to keyword arguments: underscores for dots, typed numbers and booleans."""
    return {names.get(name, name).replace(".", "_"): _typed(value) for name, value in settings.items()}


def _typed(value: str) -> Any:
    if value in {"true", "false"}:
        return value == "true"
    try:
        return int(value)
    except ValueError:
        return value
