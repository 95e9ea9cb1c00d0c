"""The number of processors changes under real clients: some connections close, no record is affected (`A28`, `A29`)."""

import os
import signal

from tests.support.broker_process import BrokerProcess
from tests.support.broker_settings import set_on_broker, set_over_first
from tests.support.deadline import wait_until
from tests.support.exposition import Exposition, Scraper
from tests.support.wire_client import WireClient, request_frame
from tests.support.wire_messages import FETCH, FETCH_VERSION, create_topic, fetch_body, read_fetch

OWN_SETTINGS = {"num.network.threads": 2, "num.io.threads": 2, "process.restart.limit": 1000}

SETTING = "num.network.threads"


def set_processors(broker: BrokerProcess, count: int) -> None:
    """Change the number, and return when all of them run and no other does."""
    set_on_broker(broker.bootstrap, SETTING, str(count))

    def is_so() -> bool:
        rows = broker.processes("processor")
        return (
            [row["index"] for row in rows if row["state"] == "running"]
            == list(range(count))
            == [row["index"] for row in rows]
        )

    wait_until(is_so, f"{count} processors")


def test_a28_only_connections_of_removed_processors_are_closed(own_broker: BrokerProcess) -> None:
    early = [WireClient(own_broker.port) for _ in range(6)]
    assert all(map(WireClient.is_served, early))
    set_processors(own_broker, 4)
    assert all(map(WireClient.is_served, early))
    late = [WireClient(own_broker.port) for _ in range(8)]
    assert all(map(WireClient.is_served, late))
    set_processors(own_broker, 2)
    assert all(map(WireClient.is_served, early))
    # They alternated with the administrator's own connections.
    assert 3 <= sum(map(WireClient.is_served, late)) <= 5
    set_processors(own_broker, 1)
    assert sum(map(WireClient.is_served, early)) == 3
    with WireClient(own_broker.port) as another:
        assert another.is_served()
    for client in (*early, *late):
        client.close()


def test_a28_a_response_under_way_leaves_before_its_connection_is_closed(own_broker: BrokerProcess, topic: str) -> None:
    """Those that wait for records are waited for too; the counts of connections and queues follow."""
    clients = [WireClient(own_broker.port) for _ in range(4)]
    create_topic(clients[0], topic, 1)
    for number, client in enumerate(clients):
        client.send(request_frame(FETCH, FETCH_VERSION, number, fetch_body(topic, 0, 0, max_wait_ms=3000)))
    set_processors(own_broker, 1)
    for number, client in enumerate(clients):
        response = client.receive_frame()
        assert int.from_bytes(response[:4], "big") == number
        assert read_fetch(response[4:])[0].error_code == 0
    assert sum(map(WireClient.is_served, clients)) == 2
    exposition: Exposition = wait_until(lambda: _settled(own_broker, 2), "the counts follow")
    assert {each.labels["processor"] for each in exposition.samples["rotunda_response_queue_size"]} == {"0"}
    for client in clients:
        client.close()


def _settled(broker: BrokerProcess, connections: int) -> Exposition | None:
    exposition = Scraper(broker).scrape()
    opened = exposition.total("acceptor_connections_accepted_total")
    closed = exposition.total("acceptor_connections_closed_total")
    return exposition if opened - closed == connections else None


def test_a29_connections_not_received_by_a_killed_processor_are_closed_and_uncounted(own_broker: BrokerProcess) -> None:
    received = [WireClient(own_broker.port) for _ in range(2)]
    assert all(map(WireClient.is_served, received))
    pid = own_broker.processes("processor")[1]["pid"]
    os.kill(pid, signal.SIGSTOP)
    queued = [WireClient(own_broker.port) for _ in range(4)]
    wait_until(lambda: _settled(own_broker, 6), "all are accepted")
    # Connections of an admin client would be the stopped one's too: librdkafka fails a request after ten seconds.
    set_over_first(received, SETTING, "1")
    wait_until(lambda: "the last of 2 processors leave" in own_broker.log_text(), "the second is to leave")
    os.kill(pid, signal.SIGKILL)
    wait_until(lambda: len(own_broker.processes("processor")) == 1, "it has ended")
    served = [client for client in (*received, *queued) if client.is_served()]
    wait_until(lambda: _settled(own_broker, len(served)), "the others are uncounted")
    assert 1 <= len(served) <= 5
    assert not received[1].is_served() or not received[0].is_served()
    set_processors(own_broker, 2)
    fresh = [WireClient(own_broker.port) for _ in range(4)]
    assert all(map(WireClient.is_served, fresh))
    for client in (*received, *queued, *fresh):
        client.close()
