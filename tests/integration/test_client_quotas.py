"""Client quotas at a running broker, as raw connections see them: throttle times, and connections that are not read.

Two processors and two handlers serve one client here, whose rate is one number.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import ExitStack, closing
from typing import Any

import pytest

from rotunda.broker.protocol.api_keys import ApiKey
from tests.support.broker_process import BrokerProcess
from tests.support.deadline import wait_until
from tests.support.exposition import Scraper
from tests.support.quota_client import QuotaClient, set_quota
from tests.support.share_consumer import ShareConsumer, topic_id_of
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


def throttled_produce(client: QuotaClient, topic: str, partition: int = 0, version: int = 7) -> int:
    """Produce until a response has a throttle time of a second or more; return it."""
    return wait_until(
        lambda: (ms := client.produce(topic, partition, version)) >= 1000 and ms, "the client to be throttled"
    )


def test_e11_d09_b11_a_producer_over_its_quota_gets_a_throttle_time_and_is_muted(
    wire: WireClient, topic: str, connect: Any
) -> None:
    """E11, E16, D09, B11: the response is immediate and has the time; later requests are not read before it is over."""
    create_topic(wire, topic, 1)
    set_quota(wire, {"client-id": topic}, producer_byte_rate=LIMIT)
    client = connect(topic)
    throttle_ms = throttled_produce(client, topic)
    assert client.api_versions() >= 0.9 * throttle_ms
    # Others are not held back.
    assert connect(f"{topic}-other").produce(topic) == 0


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


def fetch(client: QuotaClient, topic: str, session: tuple[int, int] = (0, -1), version: int = 12) -> Any:
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
    return client.ask(ApiKey.FETCH, version, fields)


def records_bytes(answer: Any) -> int:
    return sum(len(part.records or b"") for each in answer.responses for part in each.partitions)


def throttled_fetch(client: QuotaClient, topic: str, session: tuple[int, int] = (0, -1)) -> Any:
    """Fetch until a response has a throttle time; return it."""

    def attempt() -> Any:
        answer = fetch(client, topic, session)
        return answer if answer.throttle_time_ms else None

    return wait_until(attempt, "the consumer to be throttled")


def test_e12_a_consumer_over_its_quota_gets_an_empty_response_at_once(
    wire: WireClient, topic: str, connect: Any
) -> None:
    """E12: it is not charged: when the time is over, the next fetch returns the same records."""
    create_topic(wire, topic, 1)
    for _ in range(3):
        connect(f"{topic}-producer").produce(topic)
    set_quota(wire, {"client-id": topic}, consumer_byte_rate=100_000)
    client = connect(topic)
    answer = throttled_fetch(client, topic)
    throttle_ms = answer.throttle_time_ms
    assert (records_bytes(answer), answer.error_code, list(answer.responses)) == (0, 0, [])
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
    client = connect(topic)
    answer = wait_until(
        lambda: (answer := fetch(client, topic, (0, 0))).throttle_time_ms and answer, "the consumer to be throttled"
    )
    assert (answer.session_id, list(answer.responses)) == (0, [])


def test_e12_a_fetch_asks_for_no_more_than_its_windows_hold(wire: WireClient, topic: str, connect: Any) -> None:
    """E12: of 147 KB a client of 5,000 bytes a second gets one batch, which is larger than 50,000 alone."""
    create_topic(wire, topic, 1)
    for _ in range(3):
        connect(f"{topic}-producer").produce(topic)
    set_quota(wire, {"client-id": topic}, consumer_byte_rate=5_000)
    client = connect(topic)
    answer = wait_until(lambda: (each := fetch(client, topic)) and records_bytes(each) <= 60_000 and each, "the quota")
    assert 0 < records_bytes(answer) <= 60_000


def test_e13_time_in_handlers_is_charged(wire: WireClient, topic: str, connect: Any) -> None:
    """E13: a client of a hundredth percent of a thread is held back, for a second at a time at most."""
    set_quota(wire, {"client-id": topic}, request_percentage=0.01)
    client = connect(topic)
    throttle_ms = wait_until(
        lambda: client.ask(ApiKey.METADATA, 9, {"topics": []}).throttle_time_ms,
        "the client to be throttled",
    )
    assert 0 < throttle_ms <= 1000
    for key, version, fields in ((ApiKey.API_VERSIONS, 3, {}), (ApiKey.LIST_GROUPS, 4, {}), (ApiKey.FETCH, 12, None)):
        answer = wait_until(
            lambda key=key, version=version, fields=fields: (
                (each := fetch(client, topic) if fields is None else client.ask(key, version, fields)).throttle_time_ms
                and each
            ),
            f"{key.name} to be throttled",
        )
        assert answer.throttle_time_ms <= 1000


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


@pytest.fixture
def share(broker: BrokerProcess, wire: WireClient, topic: str) -> Iterator[ShareConsumer]:
    """Yield a share consumer, whose client id is the topic, that reads a topic from its beginning on."""
    create_topic(wire, topic, 1)
    topic_id = topic_id_of(broker.port, topic)
    with closing(ShareConsumer(broker.port, topic, topic_id, [0], client_id=topic).join(topic)) as member:
        member.fetch(max_wait_ms=0)
        yield member


def acquired(response: Any) -> list[int]:
    """Return the acquired offsets in a ShareFetch response; each must be delivered for the first time."""
    ranges = [each for part in response.responses for one in part.partitions for each in one.acquired_records]
    assert all(each.delivery_count == 1 for each in ranges)
    return [offset for each in ranges for offset in range(each.first_offset, each.last_offset + 1)]


def test_e12_a_throttled_share_fetch_is_empty_and_acquires_nothing(
    wire: WireClient, topic: str, connect: Any, share: ShareConsumer
) -> None:
    """E12, E16, S122: as a Fetch; the records are delivered afterwards, for the first time."""
    producer, count = connect(f"{topic}-other"), 20
    assert [producer.produce(topic) for _ in range(count)] == [0] * count
    set_quota(wire, {"client-id": topic}, consumer_byte_rate=LIMIT)
    delivered: list[int] = []
    begun = 0.0

    def throttled() -> Any:
        nonlocal begun
        begun = time.monotonic()
        response = share.fetch_raw(max_bytes=100_000, max_wait_ms=0)
        delivered.extend(acquired(response))
        return response.throttle_time_ms and response

    response = wait_until(throttled, "the client to be throttled")
    assert (response.error_code, acquired(response)) == (0, [])
    delivered += acquired(share.fetch_raw(max_bytes=100_000, max_wait_ms=0))
    assert (time.monotonic() - begun) * 1000 >= 0.9 * response.throttle_time_ms
    set_quota(wire, {"client-id": topic}, consumer_byte_rate=None)
    wait_until(lambda: delivered.extend(acquired(share.fetch_raw())) or len(delivered) == count, "all records")
    assert delivered == list(range(count))


def test_e17_share_fetches_and_acknowledgements_count_in_the_time_of_requests(
    wire: WireClient, topic: str, connect: Any, share: ShareConsumer
) -> None:
    """A throttled acknowledgement is applied; its response has the time, and the connection is muted."""
    connect(f"{topic}-other").produce(topic)
    assert wait_until(lambda: acquired(share.fetch_raw()), "the record") == [0]
    set_quota(wire, {"client-id": topic}, request_percentage=0.01)
    response = wait_until(lambda: (got := share.fetch_raw(max_wait_ms=0)).throttle_time_ms and got, "a throttle time")
    assert (response.error_code, acquired(response)) == (0, [])
    begun = time.monotonic()
    done = share.acknowledge_raw([(0, 0, 0, [1])])
    assert (done.error_code, done.responses[0].partitions[0].error_code) == (0, 0)
    assert done.throttle_time_ms > 0
    share.fetch_raw(max_wait_ms=0)
    assert (time.monotonic() - begun) * 1000 >= 0.9 * done.throttle_time_ms
