"""The network client and brokers that die, fall silent, or send nonsense: real sockets, real processes."""

from __future__ import annotations

import os
import signal
import socket
import struct
from collections.abc import Iterator
from pathlib import Path

import pytest

from rotunda.broker.client.network.network_config import NetworkConfig
from rotunda.broker.client.network.snapshot import Node
from tests.client.network.live_client import LiveClient
from tests.client.network.relay import HOST, Disturb, Relay, relay_to, unchanged
from tests.support.broker_process import BrokerProcess

pytestmark = pytest.mark.slow

PATIENT = NetworkConfig(client_id="live")
#: So short that a test may wait for it.
IMPATIENT = NetworkConfig(client_id="live", request_timeout_ms=3000)


@pytest.fixture
def relay(broker: BrokerProcess) -> Iterator[Relay]:
    """Return a relay to a broker."""
    with relay_to(broker.port) as made:
        yield made


def client_of(port: int, config: NetworkConfig = PATIENT) -> LiveClient:
    return LiveClient({"bootstrap.servers": f"{HOST}:{port}"}, config)


def connected(client: LiveClient) -> Node:
    """Connect to the bootstrap server, which metadata does not name, and return it."""
    node = client.metadata.fetch().nodes[-1]
    client.connect(node)
    return node


def another_id(response: bytes) -> bytes:
    (number,) = struct.unpack_from(">i", response, 4)
    return response[:4] + struct.pack(">i", number + 1000) + response[8:]


def cut(response: bytes) -> bytes:
    return response[:-2]


def shorter(response: bytes) -> bytes:
    """Cut bytes from the end, and reduce the size accordingly: the response ends too early."""
    return struct.pack(">i", len(response) - 4 - 6) + response[4:-6] + another_id(response)[:6]


def not_kafkas(response: bytes) -> bytes:
    return b"HTTP/1.1 400 Bad Request\r\n\r\n".ljust(len(response), b".")[: len(response)]


def ended(response: bytes) -> None:
    assert response


@pytest.mark.parametrize("disturb", [another_id, cut, shorter, not_kafkas, ended])
def test_g23_g31_an_invalid_response_fails_requests_in_flight_and_the_next_connection_works(
    relay: Relay, disturb: Disturb
) -> None:
    with client_of(relay.port) as client:
        node = connected(client)
        relay.disturb = disturb
        found = [client.send(node) for _ in range(3)]
        client.poll_until(lambda: all(found), "the end of all requests")
        assert all(each[0].disconnected and each[0].body is None for each in found)
        assert client.network.connection_failed(node)
        relay.disturb = unchanged
        client.poll_until(lambda: client.network.ready(node, client.now_ms), "another connection")
        assert int(client.ask(node).body.error_code) == 0
        client.poll_until(lambda: client.network.in_flight_count == 0, "the responses to the client's own requests")


def test_g30_a_silent_connection_is_closed(relay: Relay) -> None:
    with client_of(relay.port, IMPATIENT) as client:
        node = connected(client)
        client.poll_until(lambda: client.network.in_flight_count == 0, "the responses to the client's own requests")
        relay.is_silent = True
        found = [client.send(node), client.send(node)]
        client.poll_until(lambda: all(found), "the end of the request's time")
        assert [each[0].timed_out for each in found] == [True, True]
        # The time of the first ends all that is in flight.
        assert found[0][0].latency_ms >= 3000
        relay.is_silent = False

        def is_answered() -> bool:
            # A busy machine may be too slow for so little patience: then once more.
            return client.network.ready(node, client.now_ms) and client.ask(node).was_received

        client.poll_until(is_answered, "another connection, and a response")


@pytest.mark.parametrize("accepts", [True, False])
def test_g30_a_listener_that_never_responds_is_given_up(accepts: bool) -> None:
    config = NetworkConfig(client_id="live", request_timeout_ms=200, socket_connection_setup_timeout_ms=200)
    with socket.create_server((HOST, 0), backlog=0) as listening, socket.socket() as filling:
        if not accepts:
            # Connections beyond the backlog do not even get a SYN-ACK.
            filling.connect(listening.getsockname())
        with client_of(listening.getsockname()[1], config) as client:
            node = client.metadata.fetch().nodes[-1]
            for _ in range(2):
                client.poll_until(lambda: client.network.connection_failed(node), "the end of its time")
                client.poll_until(lambda: not client.network.connection_failed(node), "another attempt")


def test_g31_a_killed_broker_fails_requests_in_flight_and_is_found_again(tmp_path: Path) -> None:
    broker = BrokerProcess(tmp_path, ephemeral=False).start()
    try:
        with client_of(broker.port) as client:
            node = client.know("topic")
            client.connect(node)
            assert int(client.ask(node).body.error_code) == 0
            for process in broker.processes("processor"):
                # It is stopped, so that sent requests stay in flight.
                os.kill(process["pid"], signal.SIGSTOP)
            found = [client.send(node) for _ in range(4)]
            client.poll()
            assert not any(found)
            broker.kill_everything()
            client.poll_until(lambda: all(found), "the end of the requests")
            assert all(each[0].disconnected and not each[0].timed_out for each in found)
            again = BrokerProcess(tmp_path, {"listeners": f"PLAINTEXT://{broker.bootstrap}"}, ephemeral=False).start()
            broker = again
            assert client.know("topic") == node
            client.connect(node)
            assert int(client.ask(node).body.error_code) == 0
    finally:
        broker.stop()


def test_g31_a_processor_that_is_killed_costs_its_connections_only(tmp_path: Path) -> None:
    broker = BrokerProcess(tmp_path).start()
    try:
        with client_of(broker.port) as client:
            node = client.know("topic")
            client.connect(node)
            broker.kill("processor")
            client.poll_until(lambda: client.network.connection_failed(node), "the end of the connection")
            client.connect(node)
            assert int(client.ask(node).body.error_code) == 0
    finally:
        broker.stop()
