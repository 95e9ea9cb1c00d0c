"""Listeners are added and removed at run time (`A30`), with clients on the others, while processes die."""

import socket
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import Consumer, Producer
from confluent_kafka.admin import AdminClient

from ops.free_ports import free_ports
from tests.support.broker_process import BrokerProcess
from tests.support.deadline import deadline_s, wait_until
from tests.support.wire_client import WireClient, request_frame
from tests.support.wire_messages import FETCH, FETCH_VERSION, fetch, fetch_body, read_fetch

BROKER_SETTINGS = {"process.restart.limit": 1000}
BROKER_OPTIONS = {"ephemeral": False}

MAP = "listener.security.protocol.map=PLAINTEXT:PLAINTEXT,INNER:PLAINTEXT,OUTER:PLAINTEXT"


def set_listeners(broker: BrokerProcess, **listeners: str) -> None:
    """Set all listeners, by name, in addition to the one that the broker started with."""
    entries = ["PLAINTEXT://127.0.0.1:0", *(f"{name}://{address}" for name, address in listeners.items())]
    done = broker.command("config", "set", MAP, "listeners=" + ",".join(entries))
    assert done.returncode == 0, done.stderr


def added(broker: BrokerProcess, name: str = "INNER") -> int:
    """Add one listener and return its port when it is open."""
    before = broker.ports()
    set_listeners(broker, **{name: "127.0.0.1:0"})
    wait_until(lambda: len(broker.ports()) == len(before) + 1, "the listener is open")
    return broker.ports()[-1]


def works(port: int, topic: str) -> None:
    """Produce and consume by one address, which is also the advertised one."""
    address = f"127.0.0.1:{port}"
    admin = AdminClient({"bootstrap.servers": address})
    [told] = admin.list_topics(timeout=deadline_s()).brokers.values()
    assert told.port == port
    producer = Producer({"bootstrap.servers": address})
    producer.produce(topic, b"value")
    assert producer.flush(deadline_s()) == 0
    consumer = Consumer({"bootstrap.servers": address, "group.id": topic, "auto.offset.reset": "earliest"})
    consumer.subscribe([topic])
    [message] = consumer.consume(1, deadline_s())
    assert message.value() == b"value"
    consumer.close()


def is_refused(port: int) -> bool:
    with socket.socket() as client:
        return client.connect_ex(("127.0.0.1", port)) != 0


def has_ended(client: socket.socket) -> bool:
    client.settimeout(deadline_s())
    try:
        return client.recv(1) == b""
    except ConnectionResetError:
        return True


@pytest.fixture(autouse=True)
def only_listener(broker: BrokerProcess) -> Iterator[None]:
    """Remove a test's listeners."""
    yield
    set_listeners(broker)
    wait_until(lambda: len(broker.ports()) == 1, "one listener")


def test_a30_a_listener_is_added_and_removed_while_clients_use_another(broker: BrokerProcess, topic: str) -> None:
    with WireClient(broker.port) as other:
        port = added(broker)
        works(port, f"{topic}-one")
        with socket.create_connection(("127.0.0.1", port)) as idle:
            set_listeners(broker)
            wait_until(lambda: is_refused(port), "nobody listens there any more")
            assert has_ended(idle)
        assert broker.ports() == [broker.port]
        works(broker.port, f"{topic}-two")
        # The connection that was open all the time is the same one.
        assert fetch(other, f"{topic}-one", 0, 0).error_code == 0


def test_a30_a_waiting_request_has_its_response_before_its_connection_ends(broker: BrokerProcess, topic: str) -> None:
    """Although a listener of the same name is added meanwhile, whose clients are served."""
    port = added(broker)
    works(port, topic)
    with WireClient(port) as client:
        client.send(request_frame(FETCH, FETCH_VERSION, 1, fetch_body(topic, 0, 1, max_wait_ms=5000)))
        set_listeners(broker)
        wait_until(lambda: is_refused(port), "nobody listens there any more")
        wait_until(lambda: len(broker.ports()) == 1, "nor is it advertised")
        works(added(broker), f"{topic}-other")
        [fetched] = read_fetch(client.receive_frame()[4:])
        assert (fetched.error_code, fetched.records) == (0, b"")
        client.expect_closed()


def test_a30_listeners_outlive_the_whole_broker(broker: BrokerProcess, topic: str) -> None:
    """Every process is killed as soon as the command has returned, whether the listener was open by then or not."""
    set_listeners(broker, INNER="127.0.0.1:0")
    broker.kill_everything()
    broker.start()
    assert len(broker.ports()) == 2
    for port in broker.ports():
        works(port, f"{topic}-{port}")


def test_a30_listeners_of_the_file_are_applied_by_a_reload(tmp_path: Path, topic: str) -> None:
    file = tmp_path / "server.properties"
    file.write_text(f"{MAP}\nlisteners=PLAINTEXT://127.0.0.1:0\n")
    broker = BrokerProcess(tmp_path, environment={"ROTUNDA_CONFIG": str(file)})
    del broker.settings["listeners"]
    broker.start()
    try:
        file.write_text(f"{MAP}\nlisteners=PLAINTEXT://127.0.0.1:0,INNER://127.0.0.1:0\n")
        assert broker.command("reload").returncode == 0
        wait_until(lambda: len(broker.ports()) == 2, "the listener is open")
        works(broker.ports()[1], topic)
        file.write_text(f"{MAP}\nlisteners=PLAINTEXT://127.0.0.1:1,INNER://127.0.0.1:0\n")
        assert broker.command("reload").returncode == 0
        wait_until(lambda: "cannot be updated dynamically for existing listener PLAINTEXT" in broker.log_text(), "why")
        assert len(broker.ports()) == 2
    finally:
        broker.stop()


@pytest.mark.parametrize(
    ("listeners", "says"),
    [
        ("PLAINTEXT://127.0.0.1:1", "Configs cannot be updated dynamically for existing listener PLAINTEXT"),
        ("PLAINTEXT://127.0.0.1:0,INNER://0.0.0.0:0", "allow it with insecure.listen=true"),
        ("PLAINTEXT://127.0.0.1:0,SSL://127.0.0.1:0", "listener SSL: ssl.keystore.location is missing"),
        ("", "at least one listener is required"),
    ],
)
def test_a30_invalid_listeners_are_rejected(broker: BrokerProcess, listeners: str, says: str) -> None:
    refused = broker.command("config", "set", MAP, f"listeners={listeners}")
    assert refused.returncode == 1
    assert says in refused.stderr
    assert broker.ports() == [broker.port]


def test_a30_a_port_in_use_is_an_error_of_the_command(broker: BrokerProcess, topic: str) -> None:
    """Nothing is stored or opened; when the port is free the same command has the listener opened."""
    [port] = free_ports(1)
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", port))
        taken.listen()
        address = f"INNER://127.0.0.1:{port}"
        refused = broker.command("config", "set", MAP, f"listeners=PLAINTEXT://127.0.0.1:0,{address}")
        assert refused.returncode == 1
        assert f"cannot listen on {address}: the port is in use" in refused.stderr
        assert address not in broker.command("config", "list").stdout
    set_listeners(broker, INNER=f"127.0.0.1:{port}")
    wait_until(lambda: broker.ports() == [broker.port, port], "the listener is open")
    works(port, topic)


def test_a30_a_port_moves_from_one_listener_to_another(broker: BrokerProcess, topic: str) -> None:
    [port] = free_ports(1)
    set_listeners(broker, INNER=f"127.0.0.1:{port}")
    wait_until(lambda: broker.ports() == [broker.port, port], "the listener is open")
    with WireClient(port) as inner:
        set_listeners(broker, OUTER=f"127.0.0.1:{port}")
        inner.expect_closed()
    wait_until(lambda: not is_refused(port), "the other listener is open")
    wait_until(lambda: broker.ports() == [broker.port, port], "and it is told")
    works(port, topic)
