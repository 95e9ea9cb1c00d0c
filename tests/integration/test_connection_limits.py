"""Limits of connections at a broker with two listeners, changed while it runs, as raw connections see them."""

from __future__ import annotations

import socket
import time
from contextlib import ExitStack
from itertools import cycle
from pathlib import Path

import pytest
from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient

from tests.support.broker_process import BrokerProcess
from tests.support.broker_settings import alter_broker
from tests.support.deadline import wait_until
from tests.support.described_requests import ask, receive_answer, send_request
from tests.support.exposition import Exposition, metrics
from tests.support.quota_client import set_quota
from tests.support.wire_client import WireClient

BROKER_SETTINGS = {
    "num.network.threads": 1,
    "listeners": "CLIENTS://127.0.0.1:0,PLAINTEXT://127.0.0.1:0",
    "listener.security.protocol.map": "CLIENTS:PLAINTEXT",
}
LISTENERS = ["CLIENTS", "PLAINTEXT"]
API_VERSIONS = 18
#: An address whose connections are closed, most of them later.
LIMITED = "127.0.0.40"


@pytest.fixture
def protected_port(broker: BrokerProcess) -> int:
    """Return the port of the listener that the broker's own limits do not hold for."""
    return broker.ports()[1]


@pytest.fixture
def admin(protected_port: int) -> AdminClient:
    """Return librdkafka's admin client, at the protected listener."""
    return AdminClient({"bootstrap.servers": f"127.0.0.1:{protected_port}"})


def alter_all_brokers(wire: WireClient, name: str, value: str | None) -> None:
    """Set, or with None delete, the default of all brokers, which librdkafka does not support."""
    config = {"name": name, "config_operation": 0 if value is not None else 1, "value": value}
    resource = {"resource_type": 4, "resource_name": "", "configs": [config]}
    [outcome] = ask(wire, 44, 1, {"resources": [resource]}).responses
    assert outcome.error_code == 0, outcome.error_message


def is_served(port: int, host: str, held: ExitStack) -> bool:
    """Return whether another connection from an address is served rather than closed."""
    return held.enter_context(WireClient(port, source_host=host)).is_served()


def test_a26_limits_of_an_address_change_while_the_broker_runs(
    broker: BrokerProcess, admin: AdminClient, wire: WireClient, held: ExitStack
) -> None:
    """Lower limits close no open connection; they are set for this broker, or as the default of all brokers."""
    host = "127.0.0.7"
    mine = [held.enter_context(WireClient(broker.port, source_host=host)) for _ in range(3)]
    for client in mine:
        assert ask(client, 18, 0, {}).error_code == 0
    alter_broker(admin, "max.connections.per.ip.overrides", f"{host}:2, ::1:7")
    wait_until(lambda: not is_served(broker.port, host, held), "the override to be in force")
    for client in mine:
        assert ask(client, 18, 0, {}).error_code == 0
    # Others are not concerned.
    assert is_served(broker.port, "127.0.0.8", held)
    alter_broker(admin, "max.connections.per.ip.overrides", None)
    wait_until(lambda: is_served(broker.port, host, held), "the override to end")
    alter_all_brokers(wire, "max.connections.per.ip", "4")
    wait_until(lambda: not is_served(broker.port, host, held), "the limit to be in force")
    alter_all_brokers(wire, "max.connections.per.ip", None)
    wait_until(lambda: is_served(broker.port, host, held), "the limit to end")


@pytest.mark.parametrize(
    ("name", "value", "complaint"),
    [
        ("max.connections.per.ip", "0", "0 needs max.connections.per.ip.overrides"),
        ("max.connections.per.ip", "-1", "at least 0"),
        ("max.connections.per.ip.overrides", "10.0.0.1", "host:number"),
        ("max.connections", "0", "at least 1 while the broker runs"),
        ("max.connections", "many", "Not a number"),
        ("listener.name.clients.max.connections", "0", "Value must be at least"),
        ("listener.name.clients.max.connections", "x", "Not a number"),
    ],
)
def test_a15_a26_a27_a_limit_that_makes_no_sense_is_rejected_with_the_reason(
    admin: AdminClient, name: str, value: str, complaint: str
) -> None:
    with pytest.raises(KafkaException, match=complaint):
        alter_broker(admin, name, value)


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


def descriptors(broker: BrokerProcess) -> int:
    """Return how many descriptors the processes have open that connections pass through."""
    pids = [row["pid"] for role in ("acceptor", "processor") for row in broker.processes(role)]
    return sum(len(list(Path(f"/proc/{pid}/fd").iterdir())) for pid in pids)


def test_a_thousand_connections_leak_no_descriptor(broker: BrokerProcess, wire: WireClient) -> None:
    """A thousand in a second, as far as the machine can, some of them rejected with a delay, or in the middle."""
    set_quota(wire, {"ip": LIMITED}, connection_creation_rate=5)
    wait_until(lambda: metrics(broker, "rotunda_acceptor_connections_parked") == 0, "the page")
    before = descriptors(broker)
    hosts = cycle([LIMITED, *(f"127.0.0.{number}" for number in range(41, 50))])
    begin = time.monotonic()
    for number in range(1000):
        with socket.create_connection(("127.0.0.1", broker.port), 60, (next(hosts), 0)) as connection:
            if number % 3 == 0:
                connection.sendall(b"\0\0\0\x20\0\x12")
        time.sleep(max(0.0, begin + number / 1000 - time.monotonic()))
    wait_until(lambda: descriptors(broker) <= before, "the end of all of them")
    assert ask(wire, API_VERSIONS, 0, {}).error_code == 0
