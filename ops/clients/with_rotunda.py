"""Our own producer with the interface of `clients`. Its records are read by librdkafka's consumers."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from ops.clients.library import ACKNOWLEDGED, WAIT_SECONDS, ClientError, Kind, Library, Remedy, ToSend, text_of
from ops.clients.with_confluent import make_topic, member, reader
from rotunda.broker.client import Producer
from rotunda.broker.client.errors import DeliveryTimeout, InvalidProducerEpoch, KafkaError, ProducerFenced

PRODUCER_SETTINGS: dict[Kind, dict[str, object]] = {
    Kind.IDEMPOTENT: {},
    Kind.TRANSACTIONAL: {"transaction.timeout.ms": 60_000},
    Kind.PLAIN: {"enable.idempotence": False, "retries": 0},
}


class RotundaProducer:
    """A producer; each record has a future."""

    def __init__(self, bootstrap: str, kind: Kind, topic: str, transactional_id: str) -> None:
        self._topic = topic
        settings = {"bootstrap.servers": bootstrap, "client.id": topic, "linger.ms": 1, **PRODUCER_SETTINGS[kind]}
        if kind is Kind.TRANSACTIONAL:
            settings["transactional.id"] = transactional_id
        self._producer = Producer(settings)
        if kind is Kind.TRANSACTIONAL:
            translated(self._producer.init_transactions)

    def send(self, records: Sequence[ToSend]) -> list[int | str]:
        return [self._outcome(future) for future in [self._send(record) for record in records]]

    def _send(self, record: ToSend) -> Any:
        try:
            return self._producer.send(self._topic, record.value, record.key, partition=record.partition)
        except KafkaError as failure:
            return text_of(failure)

    @staticmethod
    def _outcome(future: Any) -> int | str:
        if isinstance(future, str):
            return future
        try:
            offset = future.result(3 * WAIT_SECONDS).offset
        except (KafkaError, TimeoutError) as failure:
            return text_of(failure)
        return int(offset) if offset >= 0 else ACKNOWLEDGED

    def begin(self) -> None:
        translated(self._producer.begin_transaction)

    def commit(self) -> None:
        translated(self._producer.commit_transaction)

    def abort(self) -> None:
        translated(self._producer.abort_transaction)

    def close(self) -> None:
        """Drop records in flight."""
        self._producer.close(0)


def translated(call: Callable[[], None]) -> None:
    """Call a method of the producer; its error becomes a ClientError."""
    try:
        call()
    except KafkaError as failure:
        raise ClientError(failure, remedy_for(failure)) from failure


def remedy_for(failure: KafkaError) -> Remedy:
    """Return the remedy that the producer's documentation names."""
    if isinstance(failure, DeliveryTimeout):
        return Remedy.RETRY
    if isinstance(failure, ProducerFenced | InvalidProducerEpoch) or "close the producer" in str(failure):
        return Remedy.REPLACE
    return Remedy.ABORT


def library(bootstrap: str) -> Library:
    return Library(
        "rotunda",
        partial(RotundaProducer, bootstrap),
        partial(reader, bootstrap),
        partial(member, bootstrap),
        partial(make_topic, bootstrap),
        protocols=("classic",),
        plain_repeats=False,
        records_per_second=200,
        has_share_group=True,
    )
