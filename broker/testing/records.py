"""Records that tests write and read themselves: one call each, without a client library.

Runs in the process of the tests. The requests have the client id of the fixtures: faults do not apply to them, and
lists of requests omit them.
"""

from __future__ import annotations

from collections.abc import Iterable
from itertools import islice
from typing import TYPE_CHECKING

from rotunda.broker.client.consumer.reader import Reader, Wanted
from rotunda.broker.client.network.blocking_client import CLIENT_ID, BlockingClient
from rotunda.broker.client.producer.producer import Producer
from rotunda.broker.clock import SystemClock
from rotunda.broker.errors import RotundaError

if TYPE_CHECKING:
    from rotunda.broker.records.record_reader import Record

Value = str | bytes | None


def produce(bootstrap: str, topic: str, values: Iterable[Value], key: Value, partition: int | None) -> None:
    """Write a record for each value. Raises KafkaError for the first that failed."""
    with Producer({"bootstrap.servers": bootstrap, "client.id": CLIENT_ID}) as producer:
        sent = [producer.send(topic, _bytes(value), _bytes(key), partition=partition) for value in values]
        producer.flush()
        for each in sent:
            each.result()


def consume(bootstrap: str, topic: str, count: int | None, timeout_s: float) -> list[Record]:
    """Return the topic's present records, or wait for the first ``count``. Raises RotundaError if there are fewer."""
    clock = SystemClock()
    deadline_ns = clock.monotonic_ns() + int(timeout_s * 1e9)
    found: list[Record] = []
    with BlockingClient(bootstrap) as client:
        reader = Reader(client, Wanted(topics=(topic,), follow=count is not None), clock, lambda _note: None)
        for fetch in reader.fetches():
            found += (each.record for each in islice(fetch, None if count is None else count - len(found)))
            if len(found) == count:
                break
            if clock.monotonic_ns() >= deadline_ns:
                raise RotundaError(f"{topic} has {len(found)} of {count} records after {timeout_s:g} s")
    return found


def _bytes(value: Value) -> bytes | None:
    return value.encode() if isinstance(value, str) else value
