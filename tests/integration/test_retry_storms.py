"""Clients that retry at once after an error: how a broker with automq.retry.storm.backoff slows them down."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.request import urlopen

import pytest
from confluent_kafka import Producer

from rotunda.broker.protocol.api_keys import ApiKey
from rotunda.broker.protocol.error_codes import ErrorCode
from rotunda.broker.testing import RotundaBroker
from tests.support.broker_settings import set_on_broker
from tests.support.deadline import deadline_s, wait_until
from tests.support.described_requests import receive_answer, send_request
from tests.support.exposition import Exposition
from tests.support.wire_client import WireClient

DELAY_MS = 300
#: Far more than the five errors that pass, and few enough to be in flight together.
MANY = 40
ENABLED, MAX_DELAY = "automq.retry.storm.backoff.enabled", "automq.retry.storm.backoff.max.delay.ms"
UNKNOWN = int(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)


@contextmanager
def broker(directory: Path, **settings: object) -> Iterator[RotundaBroker]:
    """Yield a broker that does not create topics automatically; in names of settings _ replaces a dot."""
    given = {name.replace("_", "."): value for name, value in settings.items()}
    fixed = {"auto.create.topics.enable": "false", "status.page.enable": "true", MAX_DELAY: DELAY_MS}
    # A broker with a data directory to keep stops as any broker does.
    with RotundaBroker({**fixed, **given}, keep=directory) as running:
        yield running


@pytest.fixture
def own(tmp_path: Path) -> Iterator[RotundaBroker]:
    """Yield a broker that does not delay responses yet."""
    with broker(tmp_path) as running:
        yield running


def connected(broker: RotundaBroker) -> WireClient:
    return WireClient(int(broker.bootstrap.rpartition(":")[2]))


def metric(broker: RotundaBroker, name: str) -> float:
    with urlopen(broker.status_url.rstrip("/") + "/metrics") as response:  # noqa: S310 - our own address
        return Exposition(response.read().decode()).total(f"processor_{name}")


def delayed(broker: RotundaBroker) -> float:
    return metric(broker, "answers_delayed_total")


def send_produce(wire: WireClient, count: int = 1) -> None:
    part = {"index": 0, "records": b""}
    topics = [{"name": "nowhere", "partition_data": [part]}]
    for _ in range(count):
        send_request(wire, ApiKey.PRODUCE, 9, {"acks": 1, "timeout_ms": 1000, "topic_data": topics})


def produce_errors(wire: WireClient, count: int = 1) -> list[int]:
    responses = [receive_answer(wire, ApiKey.PRODUCE, 9) for _ in range(count)]
    return [
        int(part.error_code) for each in responses for topic in each.responses for part in topic.partition_responses
    ]


def storm(wire: WireClient) -> list[int]:
    send_produce(wire, MANY)
    return produce_errors(wire, MANY)


def took_ms(wire: WireClient) -> float:
    """Return the response time of one request."""
    begun_ns = time.monotonic_ns()
    send_produce(wire)
    assert produce_errors(wire) == [UNKNOWN]
    return (time.monotonic_ns() - begun_ns) / 1e6


def until_delayed(broker: RotundaBroker, fail: Callable[[], object]) -> float:
    """Fail until a response has been delayed; return how many were."""
    before = delayed(broker)
    return wait_until(lambda: (fail(), delayed(broker) - before)[1], "a response to be held back")


def test_d22_off_it_costs_nobody_anything_and_on_it_makes_a_storm_slow(own: RotundaBroker) -> None:
    """D22: each response has the same content; a client that sends the next after each response gets one per delay."""
    with connected(own) as wire:
        assert [storm(wire) for _ in range(20)] == [[UNKNOWN] * MANY] * 20
        assert delayed(own) == 0
        set_on_broker(own.bootstrap, ENABLED, "true")
        until_delayed(own, lambda: storm(wire))
        wait_until(lambda: took_ms(wire) >= DELAY_MS, "a client to be slowed down")
        set_on_broker(own.bootstrap, ENABLED, "false")

        def is_off() -> bool:
            before = delayed(own)
            storm(wire)
            return metric(own, "answers_held_back") == 0 and delayed(own) == before

        wait_until(is_off, "it to be off again")
    assert "fails repeatedly at PRODUCE" in own.log_text()
    held = [each for each in own.requests("Produce") if each.total_us >= DELAY_MS * 1000]
    assert {each.error for each in held} == {"UNKNOWN_TOPIC_OR_PARTITION"}


def test_d22_librdkafka_is_slowed_down_and_recovers(own: RotundaBroker) -> None:
    """Its application sees no error: rejected requests are retried until accepted, and their records are there once."""
    set_on_broker(own.bootstrap, ENABLED, "true")
    own.create_topic("orders")
    producer = Producer(
        {
            "bootstrap.servers": own.bootstrap,
            "enable.idempotence": True,
            "retry.backoff.ms": 1,
            "retry.backoff.max.ms": 1,
        }
    )
    reports: list[Any] = []

    def told(error: Any, message: Any) -> None:
        reports.append((error, message.offset()))

    def fail() -> None:
        fault = own.fail("Produce", "NOT_LEADER_OR_FOLLOWER", times=4, topic="orders")
        producer.produce("orders", b"apples", on_delivery=told)
        assert producer.flush(deadline_s()) == 0
        assert fault.count == 4

    until_delayed(own, fail)
    assert reports == [(None, offset) for offset in range(len(reports))]
