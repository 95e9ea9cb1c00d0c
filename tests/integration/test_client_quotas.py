"""Client quotas at a running broker, as raw connections see them: throttle times, and connections that are not read.

Two processors and two handlers serve one client here, whose rate is one number.
"""

from __future__ import annotations

import select
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack
from typing import Any

import pytest
from confluent_kafka.admin import AdminClient

from rotunda.broker.protocol import codec
from rotunda.broker.protocol.api_keys import ApiKey
from tests.support.broker_process import BrokerProcess
from tests.support.broker_settings import alter_broker
from tests.support.deadline import wait_until
from tests.support.exposition import Scraper
from tests.support.quota_client import CORRELATION_ID, QuotaClient, set_quota
from tests.support.wire_client import WireClient
from tests.support.wire_messages import create_topic

LIMIT = 50_000


@pytest.fixture
def connect(broker: BrokerProcess) -> Iterator[Any]:
    """Yield a function that opens a connection of a client."""
    with ExitStack() as stack:

        def open_one(client_id: str) -> QuotaClient:
            client = QuotaClient(broker, client_id)
            stack.enter_context(client.wire)
            return client

        yield open_one


def throttled_produce(client: QuotaClient, topic: str, partition: int = 0) -> int:
    """Produce until a response has a throttle time of a second or more; return it."""
    return wait_until(lambda: (ms := client.produce(topic, partition)) >= 1000 and ms, "the client to be throttled")


def test_e09_one_client_has_one_rate_over_all_processors_and_handlers(
    wire: WireClient, topic: str, connect: Any
) -> None:
    """E09: four connections and four partitions alternate; the default of all client ids holds for each id alone."""
    create_topic(wire, topic, 4)
    set_quota(wire, {"user": None, "client-id": topic}, producer_byte_rate=LIMIT)
    clients = [connect(topic) for _ in range(4)]
    given = [client.produce(topic, number) for _ in range(3) for number, client in enumerate(clients)]
    # Twelve batches are 589 KB; 500 KB fill the windows.
    assert given[0] == 0
    assert max(given[-4:]) >= 1000
    assert connect(f"{topic}-other").produce(topic) == 0


def test_c06_a_client_id_that_is_not_utf_8_has_a_name_for_quotas_and_metrics(
    broker: BrokerProcess, wire: WireClient, topic: str, connect: Any
) -> None:
    """Kafka replaces invalid bytes by U+FFFD, and uses that name for the client."""
    create_topic(wire, topic, 1)
    set_quota(wire, {"client-id": f"{topic}-\ufffd"}, producer_byte_rate=LIMIT)
    client = connect(f"{topic}-\udce9")
    throttled_produce(client, topic)
    scraper = Scraper(broker)
    wait_until(
        lambda: scraper.scrape().values("client_quota_limit", client_id=f"{topic}-\ufffd"), "the quota in the metrics"
    )


def fetch(client: QuotaClient, topic: str, session: tuple[int, int] = (0, -1)) -> Any:
    """Fetch 100 KB from the beginning; ``session`` is (id, epoch)."""
    partition = {"partition": 0, "fetch_offset": 0, "partition_max_bytes": 100_000}
    fields = {
        "max_wait_ms": 0,
        "min_bytes": 1,
        "max_bytes": 1 << 20,
        "session_id": session[0],
        "session_epoch": session[1],
        "topics": [{"topic": topic, "partitions": [partition]}],
    }
    return client.ask(ApiKey.FETCH, 12, fields)


def records_bytes(response: Any) -> int:
    return sum(len(part.records or b"") for each in response.responses for part in each.partitions)


def throttled_fetch(client: QuotaClient, topic: str, session: tuple[int, int] = (0, -1)) -> Any:
    """Fetch until a response has a throttle time; return it."""
    return wait_until(
        lambda: (response := fetch(client, topic, session)).throttle_time_ms and response,
        "the consumer to be throttled",
    )


def test_e12_a_consumer_over_its_quota_gets_an_empty_response_at_once(
    wire: WireClient, topic: str, connect: Any
) -> None:
    """E12: it is not charged: when the time is over, the next fetch returns the same records."""
    create_topic(wire, topic, 1)
    for _ in range(3):
        connect(f"{topic}-producer").produce(topic)
    set_quota(wire, {"client-id": topic}, consumer_byte_rate=100_000)
    client = connect(topic)
    response = throttled_fetch(client, topic)
    throttle_ms = response.throttle_time_ms
    assert (records_bytes(response), response.error_code, list(response.responses)) == (0, 0, [])
    begun_ns = client.sent_ns
    wait_until(lambda: records_bytes(fetch(client, topic)), "the records to come")
    assert (time.monotonic_ns() - begun_ns) / 1e6 >= 0.9 * throttle_ms


def test_e12_the_session_of_a_throttled_fetch_knows_nothing_of_it(wire: WireClient, topic: str, connect: Any) -> None:
    """E12: one that was to be begun is not, and one that is there brings its records later."""
    create_topic(wire, topic, 1)
    for _ in range(3):
        connect(f"{topic}-producer").produce(topic)
    session = fetch(connect(topic), topic, (0, 0)).session_id
    assert session
    set_quota(wire, {"client-id": topic}, consumer_byte_rate=100_000)
    response = throttled_fetch(connect(topic), topic, (0, 0))
    assert (response.session_id, list(response.responses)) == (0, [])


def test_e12_a_fetch_asks_for_no_more_than_its_windows_hold(wire: WireClient, topic: str, connect: Any) -> None:
    """E12: of 147 KB a client of 5,000 bytes a second gets one batch, which is larger than 50,000 alone."""
    create_topic(wire, topic, 1)
    for _ in range(3):
        connect(f"{topic}-producer").produce(topic)
    set_quota(wire, {"client-id": topic}, consumer_byte_rate=5_000)
    client = connect(topic)
    response = wait_until(
        lambda: (each := fetch(client, topic)) and records_bytes(each) <= 60_000 and each, "the quota"
    )
    assert 0 < records_bytes(response) <= 60_000


def test_a_handler_is_killed_while_clients_are_throttled(
    broker: BrokerProcess, wire: WireClient, topic: str, connect: Any
) -> None:
    """No connection ends, mutes last as announced, and the replacement continues with the recorded usage."""
    create_topic(wire, topic, 2)
    set_quota(wire, {"client-id": topic}, producer_byte_rate=LIMIT)
    clients = [connect(topic) for _ in range(2)]
    throttle_times_ms = [throttled_produce(client, topic, number) for number, client in enumerate(clients)]
    for index in range(2):
        broker.kill("handler", index)
    for client, ms in zip(clients, throttle_times_ms, strict=True):
        assert client.api_versions() >= 0.9 * ms
    # 10 s' worth were used before: a lost table would allow as much at once.
    again = [client.produce(topic, number) for number, client in enumerate(clients) for _ in range(4)]
    assert max(again) >= 1000


class Pressure:
    """Connections that request more than a handler can serve, and ignore their throttle times."""

    _REQUESTS_AT_ONCE = 32

    def __init__(self, broker: BrokerProcess, topic: str, connections: int) -> None:
        resource = {"resource_type": 2, "resource_name": topic, "configuration_keys": None}
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


def test_d23_an_overloaded_broker_throttles_its_clients(
    broker: BrokerProcess, wire: WireClient, topic: str, connect: Any
) -> None:
    """D23: off by default; when requests wait too long, responses have throttle times, which are metrics."""
    create_topic(wire, topic, 4)
    admin, scraper = AdminClient({"bootstrap.servers": broker.bootstrap}), Scraper(broker)

    def throttled() -> float:
        return scraper.scrape().total("handler_overload_throttled_total")

    pressure = Pressure(broker, topic, 16)
    try:
        assert throttled() == 0
        alter_broker(admin, "overload.queue.time.ms", "1")
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
    alter_broker(admin, "overload.queue.time.ms", None)
