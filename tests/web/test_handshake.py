"""The page by HTTPS: requests through TLS, and endless handshakes that cost no other client its connection."""

import asyncio
import http.client
import socket
import ssl
import threading
from collections.abc import Iterator
from contextlib import closing, suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
import uvicorn

from rotunda.broker.security.development_ca import DevelopmentCa
from rotunda.shm.metrics.process_metrics import MetricsReader, MetricsSegment, MetricsWriter
from rotunda.shm.tables.process_slots import WEB
from rotunda.web.http.handshake import handshakes_in
from rotunda.web.http.room import Limits, Room
from rotunda.web.server import _Server
from tests.support.deadline import deadline_s, wait_until

MOST_CONNECTIONS = 16


async def echo_length(scope: Any, receive: Any, send: Any) -> None:
    """Respond with the scheme and the length of the body."""
    body, more = b"", True
    while more:
        message = await receive()
        body, more = body + message.get("body", b""), message.get("more_body", False)
    await send({"type": "http.response.start", "status": 200, "headers": []})
    await send({"type": "http.response.body", "body": f"{scope['scheme']} {len(body)}".encode()})


class Served:
    """A server on a thread with a loop of its own."""

    def __init__(self, directory: Path, timeout_s: float) -> None:
        authority = DevelopmentCa(directory, datetime.now(UTC))
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(authority.issue_server(["localhost", "127.0.0.1"]))
        self.trusting = ssl.create_default_context(cafile=str(authority.certificate))
        pages = MetricsSegment(memoryview(bytearray(MetricsSegment.bytes_needed(1, 1))), 1, 1)
        pages.initialise()
        page = pages.page(WEB, 0)
        self._reader = MetricsReader(page)
        self.lines: list[str] = []
        limits = Limits(connections=MOST_CONNECTIONS, streams=1, timeout_s=timeout_s)
        room = Room(limits, MetricsWriter(page), self._warn)
        config = uvicorn.Config(
            echo_length, lifespan="off", http=handshakes_in(room, lambda: context), log_config=None, ws="none"
        )
        self.socket = socket.create_server(("127.0.0.1", 0))
        self.port = self.socket.getsockname()[1]
        self._server = _Server(config, room, lambda: None)
        self._thread = threading.Thread(target=asyncio.run, args=(self._server.serve([self.socket]),))
        self._thread.start()

    def _warn(self, key: str, message: str, *values: object) -> bool:
        self.lines.append(f"{key}: {message % values}")
        return True

    def metric(self, name: str, label: str = "") -> int:
        return self._reader.read().values[name, label]

    def ask(self, body: bytes = b"") -> bytes:
        connection = http.client.HTTPSConnection("localhost", self.port, context=self.trusting, timeout=deadline_s())
        with closing(connection):
            connection.request("POST", "/", body)
            return connection.getresponse().read()

    def close(self) -> None:
        self._server.should_exit = True
        self._thread.join()
        self.socket.close()


@pytest.fixture
def served(tmp_path: Path) -> Iterator[Served]:
    """Yield a server that waits long."""
    made = Served(tmp_path / "tls", timeout_s=60)
    yield made
    made.close()


def test_requests_come_through_tls(served: Served) -> None:
    assert served.ask() == b"https 0"
    assert served.ask(bytes(1_000_000)) == b"https 1000000"


def test_a_request_that_comes_with_the_handshake_is_not_lost(served: Served) -> None:
    """The client's last flight and its request are written as one."""
    incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
    client = served.trusting.wrap_bio(incoming, outgoing, server_hostname="localhost")
    with socket.create_connection(("127.0.0.1", served.port), timeout=deadline_s()) as connection:
        while True:
            try:
                client.do_handshake()
                break
            except ssl.SSLWantReadError:
                connection.sendall(outgoing.read())
                incoming.write(connection.recv(65536))
        client.write(b"GET / HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
        connection.sendall(outgoing.read())
        answer = b""
        while b"https 0" not in answer:
            incoming.write(connection.recv(65536))
            with suppress(ssl.SSLWantReadError):
                answer += client.read(65536)


def test_half_open_handshakes_give_way(served: Served) -> None:
    held = [
        socket.create_connection(("127.0.0.1", served.port), timeout=deadline_s()) for _ in range(3 * MOST_CONNECTIONS)
    ]
    wait_until(lambda: served.metric("connections_dropped", "no_room") >= 2 * MOST_CONNECTIONS, "the oldest go")
    assert served.ask() == b"https 0"
    for each in held:
        each.close()
    wait_until(lambda: served.metric("connections") == 0, "all have left")


def test_a_handshake_that_takes_too_long_ends(tmp_path: Path) -> None:
    served = Served(tmp_path / "tls", timeout_s=0.1)
    try:
        with socket.create_connection(("127.0.0.1", served.port), timeout=deadline_s()) as connection:
            connection.send(b"\x16\x03")
            with suppress(ConnectionResetError):
                assert connection.recv(1) == b""
        wait_until(lambda: served.metric("connections") == 0, "it has left")
    finally:
        served.close()


def test_plain_http_is_told_in_one_line(served: Served) -> None:
    with socket.create_connection(("127.0.0.1", served.port), timeout=deadline_s()) as connection:
        connection.sendall(b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n")
    wait_until(lambda: served.lines, "a line")
    assert "handshake: status page: no TLS handshake from 127.0.0.1" in served.lines[0]
    assert "HTTP" in served.lines[0].upper()
