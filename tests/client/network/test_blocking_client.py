"""The blocking client against a broker with scripted responses, sent byte by byte."""

import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress

import pytest

from rotunda.broker.client.network.blocking_client import BlockingClient, ConnectionFailed
from rotunda.broker.protocol import codec
from rotunda.broker.protocol.api_keys import ApiKey


@contextmanager
def responding(*responses: bytes) -> Iterator[str]:
    """Serve one connection: for each request the next response, one byte at a time; then close."""

    def serve() -> None:
        connection, _ = listener.accept()
        with connection, suppress(ConnectionError):
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            for response in responses:
                connection.recv(65536)
                for position in range(len(response)):
                    connection.sendall(response[position : position + 1])

    with socket.create_server(("127.0.0.1", 0)) as listener:
        server = threading.Thread(target=serve)
        server.start()
        yield f"127.0.0.1:{listener.getsockname()[1]}"
        server.join()


def versions(correlation_id: int = 0, *served: tuple[int, int, int]) -> bytes:
    keys = [{"api_key": key, "min_version": low, "max_version": high} for key, low, high in served]
    return codec.encode_response(ApiKey.API_VERSIONS, 4, correlation_id, {"error_code": 0, "api_keys": keys})


def test_the_highest_common_version_is_used() -> None:
    with responding(versions(0, (3, 0, 9))) as address, BlockingClient(address) as client:
        assert client.highest_version(ApiKey.METADATA, 12) == 9
        assert client.highest_version(ApiKey.METADATA, 5) == 5
        with pytest.raises(ConnectionFailed, match="does not serve CREATE_TOPICS"):
            client.highest_version(ApiKey.CREATE_TOPICS, 7)
        with pytest.raises(ConnectionFailed, match="does not serve METADATA in version 10 or newer"):
            client.request(ApiKey.METADATA, {"topics": []}, 12, 10)


def test_a_list_of_addresses_is_tried_in_order() -> None:
    with responding(versions()) as address, BlockingClient(f"127.0.0.1:1,{address}") as client:
        assert client.endpoint == ("127.0.0.1", int(address.rpartition(":")[2]))


def test_a_request_ends_at_its_timeout() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        address = f"127.0.0.1:{listener.getsockname()[1]}"
        with pytest.raises(ConnectionFailed, match="no response in time"), BlockingClient(address, timeout_s=0.1):
            pass


@pytest.mark.parametrize(
    ("response", "complaint"),
    [
        (b"", "closed the connection"),
        (versions()[:9], "closed the connection"),
        (versions(correlation_id=2), "does not match"),
        (b"HTTP/1.1 400 Bad Request\r\n\r\n", "does not speak Kafka"),
        (b"\xff\xff\xff\xff", "does not speak Kafka"),
        (b"\0\0\0\0", "does not speak Kafka"),
        (b"\0\0\0\x06\0\0\0\0\0\0", "malformed"),
    ],
)
def test_a_broken_response_is_a_connection_failure(response: bytes, complaint: str) -> None:
    with (
        responding(response) as address,
        pytest.raises(ConnectionFailed, match=complaint),
        BlockingClient(address),
    ):
        pass


@pytest.mark.parametrize("address", ["127.0.0.1:1", "nowhere", "127.0.0.1:http", ""])
def test_an_address_without_a_broker(address: str) -> None:
    with pytest.raises(ConnectionFailed, match="cannot connect"), BlockingClient(address):
        pass
