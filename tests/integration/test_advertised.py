"""The address that clients receive from the broker (`C18`): the one that each connected to, or the configured one."""

import asyncio
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest
from aiokafka import AIOKafkaProducer
from confluent_kafka import Consumer, Producer
from confluent_kafka.admin import AdminClient
from kafka import KafkaConsumer

from tests.support.broker_process import BrokerProcess
from tests.support.deadline import deadline_s, wait_until

SETTINGS = {"insecure.listen": "true", "num.network.threads": 2, "num.io.threads": 2}


def addresses() -> list[str]:
    """Return addresses by which this machine reaches itself: of the loopback, and those that it has besides."""
    found = {"127.0.0.1", "127.0.0.2"}
    for each in (each for of_one in psutil.net_if_addrs().values() for each in of_one):
        if each.family in (socket.AF_INET, socket.AF_INET6) and "%" not in each.address:
            found.add(each.address)
    return sorted(found)


def written(host: str, port: int) -> str:
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


@pytest.fixture(scope="module")
def everywhere(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    """Yield a broker on all interfaces of both families."""
    broker = BrokerProcess(tmp_path_factory.mktemp("broker"), {**SETTINGS, "listeners": "PLAINTEXT://:0"})
    broker.start()
    yield broker
    broker.stop()


@pytest.mark.parametrize("host", addresses())
def test_c18_librdkafka_is_given_the_address_that_it_has_reached(everywhere: BrokerProcess, host: str) -> None:
    """By Metadata, DescribeCluster and FindCoordinator; and produces and consumes there, in a group."""
    bootstrap, topic = {"bootstrap.servers": written(host, everywhere.port)}, f"topic-{host.replace(':', '.')}"
    producer = Producer(bootstrap)
    producer.produce(topic, b"value")
    assert producer.flush(deadline_s()) == 0
    consumer = Consumer({**bootstrap, "group.id": topic, "auto.offset.reset": "earliest"})
    consumer.subscribe([topic])
    [message] = consumer.consume(1, deadline_s())
    assert message.value() == b"value"
    consumer.commit(message, asynchronous=False)

    admin = AdminClient(bootstrap)
    [told] = admin.list_topics(timeout=deadline_s()).brokers.values()
    [node] = admin.describe_cluster().result(deadline_s()).nodes
    coordinator = admin.describe_consumer_groups([topic])[topic].result(deadline_s()).coordinator
    consumer.close()
    given = {(each.host.strip("[]"), each.port) for each in (told, node, coordinator)}
    assert given == {(host, everywhere.port)}


@pytest.mark.parametrize("host", addresses())
def test_c18_clients_in_python_are_given_the_address_that_they_have_reached(
    everywhere: BrokerProcess, host: str
) -> None:
    bootstrap, topic = written(host, everywhere.port), f"python-{host.replace(':', '.')}"

    async def produce() -> set[tuple[str, int]]:
        async with AIOKafkaProducer(bootstrap_servers=bootstrap) as producer:
            await producer.send_and_wait(topic, b"value")
            return {(each.host, each.port) for each in producer.client.cluster.brokers()}

    assert asyncio.run(produce()) == {(host, everywhere.port)}
    consumer = KafkaConsumer(
        topic, bootstrap_servers=bootstrap, auto_offset_reset="earliest", consumer_timeout_ms=deadline_s() * 1000
    )
    assert next(consumer).value == b"value"
    consumer.close()


def told(bootstrap: str) -> str:
    """Return the address that a client of one address receives."""
    [broker] = AdminClient({"bootstrap.servers": bootstrap}).list_topics(timeout=deadline_s()).brokers.values()
    return f"{broker.host}:{broker.port}"


def test_c18_a_handler_that_is_replaced_and_a_resent_request_know_it_too(everywhere: BrokerProcess) -> None:
    for role in ("handler", "processor"):
        everywhere.kill(role)
        for host in ("127.0.0.1", "127.0.0.2"):
            assert told(f"{host}:{everywhere.port}") == f"{host}:{everywhere.port}"


def test_c18_an_advertised_address_is_set_and_unset_while_clients_are_connected(everywhere: BrokerProcess) -> None:
    """New connections receive the present setting, also those of a client that has another address."""
    reached = f"127.0.0.2:{everywhere.port}"
    client = AdminClient({"bootstrap.servers": reached})
    client.list_topics(timeout=deadline_s())
    given = f"127.0.0.3:{everywhere.port}"
    assert everywhere.command("config", "set", f"advertised.listeners=PLAINTEXT://{given}").returncode == 0
    wait_until(lambda: told(reached) == given, "the address that is set")
    assert everywhere.status()["bootstrap"] == given
    assert everywhere.command("config", "delete", "advertised.listeners").returncode == 0
    wait_until(lambda: told(reached) == reached, "the address that is reached")
    client.list_topics(timeout=deadline_s())


def test_c18_listeners_may_share_an_advertised_port_and_advertise_the_reached_host(tmp_path: Path) -> None:
    settings = {
        "listener.security.protocol.map": "A:PLAINTEXT,B:PLAINTEXT,C:PLAINTEXT",
        "listeners": "A://127.0.0.1:0,B://[::1%lo]:0,C://127.0.0.2:0",
        "advertised.listeners": "A://internal.example:9092,B://external.example:9092,C://:9092",
    }
    broker = BrokerProcess(tmp_path, settings)
    broker.start()
    try:
        ports = {each.laddr.ip: each.laddr.port for each in listening(broker)}
        given = [told(written(host, ports[host])) for host in ("127.0.0.1", "::1", "127.0.0.2")]
        assert given == ["internal.example:9092", "external.example:9092", "127.0.0.2:9092"]
        assert broker.status()["bootstrap"] == "internal.example:9092,external.example:9092,127.0.0.2:9092"
    finally:
        broker.stop()


def listening(broker: BrokerProcess) -> list[Any]:
    """Return the sockets at which the acceptor waits for clients."""
    [acceptor] = broker.processes("acceptor")
    return [each for each in psutil.Process(acceptor["pid"]).net_connections("tcp") if each.status == "LISTEN"]
