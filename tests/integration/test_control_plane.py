"""The control plane: an administrator is served however busy the processors of clients are."""

import os
import signal

import pytest
from confluent_kafka.admin import AdminClient, NewTopic

from rotunda.broker.config.broker_config import load
from rotunda.broker.errors import ConfigError
from tests.support.broker_process import BrokerProcess
from tests.support.broker_settings import set_on_broker
from tests.support.deadline import deadline_s, wait_until
from tests.support.wire_client import WireClient
from tests.support.wire_messages import API_VERSIONS

CLIENT_PROCESSORS = 2
MOST_CONNECTIONS = 6
OWN_SETTINGS = {
    "listeners": "PLAINTEXT://127.0.0.1:0,ADMIN://127.0.0.1:0",
    "listener.security.protocol.map": "ADMIN:PLAINTEXT",
    "control.plane.listener.name": "admin",
    "num.network.threads": CLIENT_PROCESSORS,
    "max.connections": MOST_CONNECTIONS,
    # A processor that the test stops must not be replaced meanwhile.
    "process.hang.timeout.ms": 600_000,
}


def test_h01_administrators_are_served_while_the_processors_of_clients_are_stopped(own_broker: BrokerProcess) -> None:
    """H01: the control plane has a processor and rings of its own, and the broker's commands use them."""
    address = own_broker.status()["control_plane"]
    assert address not in own_broker.status()["bootstrap"]
    processors = own_broker.processes("processor")
    assert [row["index"] for row in processors] == list(range(1 + CLIENT_PROCESSORS))
    of_clients = [row["pid"] for row in processors[1:]]
    for pid in of_clients:
        os.kill(pid, signal.SIGSTOP)
    try:
        admin = AdminClient({"bootstrap.servers": address})
        admin.create_topics([NewTopic("made", 3)])["made"].result(deadline_s())
        assert "made" in admin.list_topics(timeout=deadline_s()).topics
        listed = own_broker.command("topic", "list")
        assert "made" in listed.stdout, listed.stderr
    finally:
        for pid in of_clients:
            os.kill(pid, signal.SIGCONT)
    with WireClient(own_broker.port) as client:
        client.call(API_VERSIONS, 0)


def test_h01_max_connections_keeps_no_administrator_out(own_broker: BrokerProcess) -> None:
    """A08, A17: where there is no room, the connection of a client makes some that has been idle longest."""
    clients = [WireClient(own_broker.port) for _ in range(MOST_CONNECTIONS)]
    for client in clients:
        client.call(API_VERSIONS, 0)
    assert own_broker.command("topic", "list").returncode == 0
    clients[0].expect_closed()
    clients[0].close()
    for client in clients[1:]:
        client.call(API_VERSIONS, 0)
        client.close()


def test_a28_the_number_of_processors_is_that_of_clients(own_broker: BrokerProcess) -> None:
    """num.network.threads counts the processors of clients; the control plane has its own."""
    set_on_broker(own_broker.status()["control_plane"], "num.network.threads", "1")
    wait_until(lambda: len(own_broker.processes("processor")) == 2, "the last of them leaves")
    with WireClient(own_broker.port) as client:
        client.call(API_VERSIONS, 0)
    assert own_broker.command("topic", "list").returncode == 0


@pytest.mark.parametrize(
    ("settings", "complaint"),
    [
        ({"control.plane.listener.name": "OTHER"}, "unknown listener OTHER; known: PLAINTEXT"),
        ({"control.plane.listener.name": "PLAINTEXT"}, "PLAINTEXT is the only listener: clients need another"),
        (
            {**OWN_SETTINGS, "inter.broker.listener.name": "ADMIN"},
            "admin is inter.broker.listener.name; they must differ",
        ),
    ],
)
def test_h02_a_control_plane_that_cannot_be_is_rejected(settings: dict[str, object], complaint: str) -> None:
    """H02: it is one of several listeners, and not that of brokers among themselves."""
    with pytest.raises(ConfigError, match=complaint):
        load(None, {name: str(value) for name, value in settings.items()}, {})
