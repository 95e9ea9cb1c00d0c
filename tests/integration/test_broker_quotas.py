"""The quota of all clients together, its exemptions, and the throttling of an overloaded broker."""

from __future__ import annotations

import select
import threading
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from rotunda.broker.protocol import codec
from rotunda.broker.protocol.api_keys import ApiKey
from tests.support.broker_process import BrokerProcess
from tests.support.broker_settings import set_on_broker
from tests.support.deadline import wait_until
from tests.support.exposition import Scraper
from tests.support.quota_client import CORRELATION_ID, QuotaClient
from tests.support.wire_client import WireClient
from tests.support.wire_messages import create_topic

BYTES = 50_000
TOPIC = "shared"


@pytest.fixture
def own(broker_directory: Path) -> Iterator[BrokerProcess]:
    """Yield a broker with a second listener."""
    settings = {
        "listeners": "PLAINTEXT://127.0.0.1:0,SPARED://127.0.0.1:0",
        "listener.security.protocol.map": "SPARED:PLAINTEXT",
        "num.io.threads": 2,
        "status.page.enable": "true",
    }
    running = BrokerProcess(broker_directory, settings).start()
    with WireClient(running.port) as wire:
        create_topic(wire, TOPIC, 4)
    yield running
    running.stop()


@pytest.fixture
def connect(own: BrokerProcess) -> Iterator[Any]:
    """Yield a function that opens a connection of a client, to one of the listeners."""
    ports = own.ports()
    with ExitStack() as stack:

        def open_one(client_id: str, listener: int = 0) -> QuotaClient:
            client = QuotaClient(own, client_id, ports[listener])
            stack.enter_context(client.wire)
            return client

        yield open_one


def test_e18_all_clients_together_have_one_limit(own: BrokerProcess, connect: Any) -> None:
    """E18, H03: each client is throttled for the bytes of all others; exempt ones are neither throttled nor counted."""
    set_on_broker(own.bootstrap, "broker.quota.white.list.client.id", "spared,other")
    set_on_broker(own.bootstrap, "broker.quota.white.list.listener", "SPARED")
    set_on_broker(own.bootstrap, "broker.quota.produce.bytes", str(BYTES))
    spared = connect("spared"), connect("anybody", 1)
    for client in spared:
        assert [client.produce(TOPIC) for _ in range(20)] == [0] * 20
    given = [connect(name).produce(TOPIC, number % 4) for number, name in enumerate("abcdefghijklmnop")]
    # Sixteen batches are 785 KB; 500 KB fill the windows.
    assert given[0] == 0
    assert 1000 <= max(given[-4:]) <= 11_000
    assert [client.produce(TOPIC) for client in spared] == [0, 0]
    set_on_broker(own.bootstrap, "broker.quota.produce.bytes", str(2**63 - 1))
    wait_until(lambda: connect("late").produce(TOPIC) == 0, "the limit to be gone")


def test_e18_requests_and_responses_to_fetches_have_limits_too(own: BrokerProcess, connect: Any) -> None:
    set_on_broker(own.bootstrap, "broker.quota.request.rate", "1")

    def throttle_ms() -> int:
        return connect("asking").ask(ApiKey.METADATA, 9, {"topics": []}).throttle_time_ms

    assert wait_until(throttle_ms, "somebody to be throttled") <= 11_000
    set_on_broker(own.bootstrap, "broker.quota.request.rate", str(2**63 - 1))
    connect("producer").produce(TOPIC)
    set_on_broker(own.bootstrap, "broker.quota.fetch.bytes", "1000")

    def fetched() -> Any:
        partition = {"partition": 0, "fetch_offset": 0, "partition_max_bytes": 100_000}
        fields = {
            "max_wait_ms": 0, "min_bytes": 1, "max_bytes": 1 << 20, "session_id": 0, "session_epoch": -1,
            "topics": [{"topic": TOPIC, "partitions": [partition]}],
        }  # fmt: skip
        return connect("reading").ask(ApiKey.FETCH, 12, fields)

    answer = wait_until(lambda: (each := fetched()).throttle_time_ms and each, "a consumer to be throttled")
    assert list(answer.responses) == []


class Pressure:
    """Connections that request more than a handler can serve, and ignore their throttle times."""

    _REQUESTS_AT_ONCE = 32

    def __init__(self, broker: BrokerProcess, connections: int) -> None:
        resource = {"resource_type": 2, "resource_name": TOPIC, "configuration_keys": None}
        fields = {"resources": [resource], "include_synonyms": True, "include_documentation": True}
        frame = codec.encode_request(ApiKey.DESCRIBE_CONFIGS, 4, CORRELATION_ID, "pressing", fields)
        self._burst = frame * self._REQUESTS_AT_ONCE
        self._clients = [WireClient(broker.port) for _ in range(connections)]
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._press, daemon=True)
        self._thread.start()

    def _press(self) -> None:
        for client in self._clients:
            client.socket.setblocking(False)
        by_fd = {client.socket.fileno(): [client.socket, b""] for client in self._clients}
        poll = select.poll()
        for fd in by_fd:
            poll.register(fd, select.POLLIN | select.POLLOUT)
        while not self._stopped.is_set():
            for fd, events in poll.poll(100):
                sock, left = by_fd[fd]
                if events & select.POLLIN:
                    sock.recv(1 << 20)
                if events & select.POLLOUT:
                    left = left or self._burst
                    by_fd[fd][1] = left[sock.send(left) :]

    def stop(self) -> None:
        """End it."""
        self._stopped.set()
        self._thread.join()
        for client in self._clients:
            client.close()


def test_d23_an_overloaded_broker_throttles_its_clients_and_logs_it(own: BrokerProcess, connect: Any) -> None:
    """D23: off by default; when requests wait too long responses have throttle times, on the page and as metrics."""
    scraper = Scraper(own)

    def throttled() -> float:
        return scraper.scrape().total("handler_overload_throttled_total")

    pressure = Pressure(own, 16)
    try:
        assert throttled() == 0
        set_on_broker(own.bootstrap, "overload.queue.time.ms", "1")
        wait_until(throttled, "answers with throttle times")
        client = connect("bystander")
        wait_until(
            lambda: client.ask(ApiKey.METADATA, 9, {"topics": []}).throttle_time_ms,
            "another client to be slowed down",
        )
    finally:
        pressure.stop()
    client = connect("afterwards")
    wait_until(
        lambda: not client.ask(ApiKey.METADATA, 9, {"topics": []}).throttle_time_ms,
        "the throttle times to come to an end",
    )
