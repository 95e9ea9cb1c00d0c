"""Connection quotas at a broker with two listeners, changed while it runs, as clients of several kinds see them."""

from __future__ import annotations

import socket
import time
import warnings
from contextlib import ExitStack
from itertools import cycle
from pathlib import Path

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient

from tests.support.broker_process import BrokerProcess
from tests.support.broker_settings import alter_broker
from tests.support.deadline import deadline_s, wait_until
from tests.support.described_requests import ask, receive_answer, send_request
from tests.support.exposition import Exposition, metrics
from tests.support.wire_client import WireClient

with warnings.catch_warnings():
    warnings.simplefilter("ignore", DeprecationWarning)
    from kafka import KafkaProducer

pytestmark = pytest.mark.filterwarnings("ignore:read_text is deprecated:DeprecationWarning")

BROKER_SETTINGS = {
    "num.network.threads": 1,
    "listeners": "CLIENTS://127.0.0.1:0,PLAINTEXT://127.0.0.1:0",
    "listener.security.protocol.map": "CLIENTS:PLAINTEXT",
}
LISTENERS = ["CLIENTS", "PLAINTEXT"]
API_VERSIONS, ALTER_CLIENT_QUOTAS = 18, 49
ADMINISTRATOR = "127.0.0.99"
RATE = "connection_creation_rate"
#: A rate is measured over as many windows as the seconds before it expires.
WINDOWS = 11


@pytest.fixture
def protected_port(broker: BrokerProcess) -> int:
    """Return the port of the listener that the broker's own limits do not hold for."""
    return broker.ports()[1]


@pytest.fixture
def admin(protected_port: int) -> AdminClient:
    """Return librdkafka's admin client, at the protected listener."""
    return AdminClient({"bootstrap.servers": f"127.0.0.1:{protected_port}"})


def set_rate(port: int, host: str | None, rate: float | None) -> None:
    """Set, or with None delete, the rate of an address, or with None of all that have none of their own."""
    ops = [{"key": RATE, "value": rate or 0.0, "remove": rate is None}]
    entry = {"entity": [{"entity_type": "ip", "entity_name": host}], "ops": ops}
    with WireClient(port, source_host=ADMINISTRATOR) as client:
        [outcome] = ask(client, ALTER_CLIENT_QUOTAS, 1, {"entries": [entry], "validate_only": False}).entries
    assert outcome.error_code == 0, outcome.error_message


def test_a12_connections_beyond_the_rate_of_their_address_are_closed(
    broker: BrokerProcess, protected_port: int, held: ExitStack
) -> None:
    """And has its rate again later; other addresses do not notice."""
    host = "127.0.0.20"
    set_rate(protected_port, host, 1)

    def connect() -> WireClient:
        return held.enter_context(WireClient(broker.port, source_host=host))

    wait_until(lambda: not connect().is_served(), "the quota to be in force, and used up")
    assert held.enter_context(WireClient(broker.port, source_host="127.0.0.21")).is_served()
    assert metrics(broker, "rotunda_acceptor_ip_accept_throttled_total") > 0
    wait_until(lambda: connect().is_served(), "the rate to be forgotten")
    set_rate(protected_port, host, None)
    wait_until(lambda: all(connect().is_served() for _ in range(WINDOWS + 1)), "the end of the quota")


def test_a12_producers_succeed_beyond_the_rate_of_their_address(
    broker: BrokerProcess, protected_port: int, topic: str
) -> None:
    """They reconnect until they are accepted; the application sees no error."""
    set_rate(protected_port, "127.0.0.1", 2)
    try:
        parked = metrics(broker, "rotunda_acceptor_ip_accept_throttled_total")

        def is_used_up() -> bool:
            socket.create_connection(("127.0.0.1", broker.port)).close()
            return metrics(broker, "rotunda_acceptor_ip_accept_throttled_total") > parked

        wait_until(is_used_up, "the rate to be used up")
        before = metrics(broker, "rotunda_acceptor_ip_accept_throttled_total")
        confluent = Producer({"bootstrap.servers": f"127.0.0.1:{broker.port}", "message.timeout.ms": 60_000})
        outcomes: list[object] = []
        confluent.produce(topic, b"1", on_delivery=lambda error, _: outcomes.append(error))
        python = KafkaProducer(bootstrap_servers=f"127.0.0.1:{broker.port}")
        python.send(topic, b"2").get(deadline_s())
        python.close()
        assert confluent.flush(deadline_s()) == 0
        assert outcomes == [None]
        assert metrics(broker, "rotunda_acceptor_ip_accept_throttled_total") > before
    finally:
        set_rate(protected_port, "127.0.0.1", None)


def test_a10_a27_beyond_its_rate_a_listener_waits_and_the_other_does_not(
    broker: BrokerProcess, admin: AdminClient, protected_port: int, held: ExitStack
) -> None:
    """Every client is served in the end; a waiting one is connected, and receives nothing until then."""
    alter_broker(admin, "listener.name.clients.max.connection.creation.rate", "1")
    try:
        throttled = metrics(broker, "rotunda_acceptor_accept_throttled_total")

        def is_throttled() -> bool:
            assert held.enter_context(WireClient(broker.port)).is_served()
            return metrics(broker, "rotunda_acceptor_accept_throttled_total") > throttled

        wait_until(is_throttled, "the rate to be used up")
        waiting = held.enter_context(WireClient(broker.port))
        send_request(waiting, API_VERSIONS, 0, {})
        with WireClient(protected_port) as administrator:
            assert ask(administrator, API_VERSIONS, 0, {}).error_code == 0
        assert receive_answer(waiting, API_VERSIONS, 0).error_code == 0
        assert metrics(broker, "rotunda_acceptor_accept_throttle_seconds_total") > 0
        assert metrics(broker, "rotunda_acceptor_blocked_seconds_total") > 0
    finally:
        alter_broker(admin, "listener.name.clients.max.connection.creation.rate", None)


def test_a16_a17_a18_a_lower_limit_closes_the_most_silent_clients_and_no_more(
    broker: BrokerProcess, admin: AdminClient, protected_port: int, held: ExitStack
) -> None:
    """Administrators stay connected, and are accepted when the broker is full."""
    administrators = [held.enter_context(WireClient(protected_port)) for _ in range(2)]
    clients = [held.enter_context(WireClient(broker.port)) for _ in range(12)]
    active = clients[::2] + clients[1::2]
    for client in (*active, *administrators):
        assert ask(client, API_VERSIONS, 0, {}).error_code == 0
    most = 9
    closed = metrics(broker, "rotunda_processor_connections_closed_total")
    alter_broker(admin, "max.connections", str(most))
    try:

        def open_now() -> float:
            accepted = metrics(broker, "rotunda_acceptor_connections_accepted_total")
            return accepted - metrics(broker, "rotunda_acceptor_connections_closed_total")

        wait_until(lambda: open_now() == most, "the excess to be closed")
        assert metrics(broker, "rotunda_processor_connections_closed_total") > closed
        left = [client for client in active if client.is_served()]
        assert 0 < len(left) < len(active)
        assert left == active[-len(left) :]
        for client in (*administrators, held.enter_context(WireClient(protected_port))):
            assert ask(client, API_VERSIONS, 0, {}).error_code == 0
    finally:
        alter_broker(admin, "max.connections", None)


def test_the_command_has_each_listener_by_its_name(broker: BrokerProcess) -> None:
    samples = Exposition(broker.command("metrics").stdout).samples["rotunda_acceptor_connections_accepted_total"]
    assert [sample.labels["listener"] for sample in samples] == LISTENERS


def test_a14_a12_limits_of_ipv6_addresses(broker_directory: Path, held: ExitStack) -> None:
    """An empty host is both families: an IPv4 client has its IPv4 address, and an IPv6 client its own."""
    settings = {
        "listeners": "PLAINTEXT://:0",
        "advertised.listeners": "PLAINTEXT://127.0.0.1:0",
        "insecure.listen": "true",
        "max.connections.per.ip.overrides": "::1:1,127.0.0.30:2",
    }
    broker = BrokerProcess(broker_directory, settings).start()
    try:

        def served(host: str) -> bool:
            family = ("::1", broker.port) if ":" in host else ("127.0.0.1", broker.port)
            sock = held.enter_context(socket.create_connection(family, 60, (host, 0)))
            sock.sendall(bytes.fromhex("0000000c 0012 0000 00000001 0002 6161"))
            try:
                return bool(sock.recv(4))
            except ConnectionResetError:
                return False

        assert [served("::1") for _ in range(3)] == [True, False, False]
        assert [served("127.0.0.30") for _ in range(4)] == [True, True, False, False]
        assert served("127.0.0.31")
    finally:
        broker.stop()


def descriptors(broker: BrokerProcess) -> int:
    """Return how many descriptors the processes have open that connections pass through."""
    pids = [row["pid"] for role in ("acceptor", "processor") for row in broker.processes(role)]
    return sum(len(list(Path(f"/proc/{pid}/fd").iterdir())) for pid in pids)


def test_thousands_of_connections_leak_no_descriptor(broker: BrokerProcess, protected_port: int) -> None:
    """A thousand a second, as far as the machine can, some of them rejected with a delay, at once, or in the middle."""
    set_rate(protected_port, "127.0.0.40", 5)
    wait_until(lambda: metrics(broker, "rotunda_acceptor_connections_parked") == 0, "the page")
    before = descriptors(broker)
    hosts = cycle(["127.0.0.40", *(f"127.0.0.{number}" for number in range(41, 50))])
    begin = time.monotonic()
    for number in range(4000):
        client = socket.create_connection(("127.0.0.1", broker.port), 60, (next(hosts), 0))
        if number % 3 == 0:
            client.sendall(b"\0\0\0\x20\0\x12")
        client.close()
        time.sleep(max(0.0, begin + number / 1000 - time.monotonic()))
    wait_until(lambda: descriptors(broker) <= before, "the end of all of them")
    set_rate(protected_port, "127.0.0.40", None)
    with WireClient(broker.port) as client:
        assert ask(client, API_VERSIONS, 0, {}).error_code == 0
