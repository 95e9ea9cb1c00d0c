"""Limits of connections at a running broker, set and changed by admin clients, as raw connections see them."""

from __future__ import annotations

from contextlib import ExitStack

import pytest
from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient

from tests.support.broker_process import BrokerProcess
from tests.support.broker_settings import alter_broker
from tests.support.deadline import wait_until
from tests.support.described_requests import ask
from tests.support.wire_client import WireClient

BROKER_SETTINGS = {
    "listeners": "CLIENTS://127.0.0.1:0,PLAINTEXT://127.0.0.1:0",
    "listener.security.protocol.map": "CLIENTS:PLAINTEXT",
}


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


def test_a26_a33_limits_and_counts_outlive_the_acceptor(
    broker: BrokerProcess, admin: AdminClient, held: ExitStack
) -> None:
    """Its replacement reads the limits in force and the open connections before it accepts any."""
    host = "127.0.0.9"
    alter_broker(admin, "max.connections.per.ip.overrides", f"{host}:3")
    with ExitStack() as for_a_while:
        wait_until(lambda: not is_served(broker.port, host, for_a_while), "the override to be in force")
    mine: list[WireClient] = []

    def open_another() -> bool:
        client = held.enter_context(WireClient(broker.port, source_host=host))
        if not client.is_served():
            return False
        mine.append(client)
        return True

    for _ in range(3):
        wait_until(open_another, "room for one")
    assert not open_another()
    broker.kill("acceptor")
    assert not open_another()
    mine[0].close()
    wait_until(open_another, "room for another")
    assert not open_another()
    alter_broker(admin, "max.connections.per.ip.overrides", None)


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
