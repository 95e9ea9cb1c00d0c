"""The page of a real broker under many readers and idle connections: probes and /metrics always get a response."""

import http.client
import json
import resource
import selectors
import socket
import time
from collections.abc import Iterator
from contextlib import ExitStack, closing

import pytest

from tests.support.broker_process import PAGE, BrokerProcess
from tests.support.deadline import deadline_s, wait_until
from tests.support.status_page import address, ask

pytestmark = pytest.mark.slow

BROKER_SETTINGS = {**PAGE, "num.network.threads": 1, "num.io.threads": 1, "status.request.timeout.ms": 2000}

DROPPED = "rotunda_web_connections_dropped_total"

STREAMS = 500
SLOW_SOCKETS = 1000

#: A slower probe counts as failed; on a quiet machine.
PROBE_DEADLINE_S = 20.0


@pytest.fixture(autouse=True)
def _descriptors() -> Iterator[None]:
    """Raise this process's descriptor limit for all those sockets."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, min(hard, 8192)), hard))
    yield
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def connect(broker: BrokerProcess, request: bytes, held: ExitStack) -> socket.socket:
    """Return a connection on which a request, or the beginning of one, has been sent."""
    connection = held.enter_context(socket.create_connection(address(broker), timeout=deadline_s()))
    connection.sendall(request)
    return connection


def get(path: str) -> bytes:
    """Return a whole request."""
    return f"GET {path} HTTP/1.1\r\nHost: localhost\r\n\r\n".encode()


def assert_is_served(broker: BrokerProcess) -> None:
    """Assert that probes, /metrics and the page respond in time."""
    for path in ("/readyz", "/healthz", "/metrics", "/", "/view/overview", "/static/live.js"):
        begin = time.monotonic()
        code, _, body = ask(broker, path)
        assert code == 200, (path, code, body)
        assert time.monotonic() - begin < deadline_s(PROBE_DEADLINE_S), path


def metric(broker: BrokerProcess, name: str) -> float:
    """Return a sample of /metrics by its name and labels."""
    lines = ask(broker, "/metrics")[2].decode().splitlines()
    return float(next(line.rsplit(" ", 1)[1] for line in lines if line.startswith(f"{name} ")))


def statuses(connections: list[socket.socket]) -> list[int]:
    """Return the status code of the response on each connection; 0 where the connection was closed."""
    found: dict[int, int] = {}
    with selectors.DefaultSelector() as selector:
        for number, connection in enumerate(connections):
            selector.register(connection, selectors.EVENT_READ, number)
        end = time.monotonic() + deadline_s(60)
        while len(found) < len(connections) and time.monotonic() < end:
            for key, _ in selector.select(1):
                head = key.fileobj.recv(4096)  # type: ignore[union-attr]
                found[key.data] = int(head.split(b" ", 2)[1]) if head else 0
                selector.unregister(key.fileobj)
    return [found[number] for number in range(len(connections))]


def test_streams_and_slow_sockets_leave_probes_their_room(broker: BrokerProcess):
    """500 streams and 1,000 sockets that never send a whole request, together."""
    with ExitStack() as held:
        streams = [connect(broker, get("/events/overview"), held) for _ in range(STREAMS)]
        found = statuses(streams)
        assert set(found) == {200, 503}
        assert found.count(200) == 100
        assert_is_served(broker)
        slow = [connect(broker, b"GET /readyz HTTP/1.1\r\nX-Slow: ", held) for _ in range(SLOW_SOCKETS)]
        assert_is_served(broker)
        # Streams that are served continue.
        served = streams[found.index(200)]
        assert served.recv(65536)
        # A slow sender is dropped, however often it sends another byte.
        for connection in slow:
            connection.setblocking(False)

        def all_dropped() -> bool:
            left = [each for each in slow if not has_ended(each)]
            slow[:] = left
            return not left

        wait_until(all_dropped, "the end of every slow connection")
        assert_is_served(broker)
        wait_until(lambda: metric(broker, "rotunda_web_streams") == 100, "the streams that are served")
        wait_until(lambda: metric(broker, f'{DROPPED}{{cause="slow_request"}}') > 0, "slow requests among the dropped")
        wait_until(lambda: metric(broker, f'{DROPPED}{{cause="no_room"}}') > 0, "others for which there was no room")
    wait_until(lambda: metric(broker, "rotunda_web_streams") == 0, "the end of the streams")


def has_ended(connection: socket.socket) -> bool:
    """Send another byte; return whether the other side has closed."""
    try:
        connection.send(b"x")
        return connection.recv(1) == b""
    except BlockingIOError:
        return False
    except OSError:
        return True


def test_a_rejected_stream_says_when_to_come_back_and_closes(broker: BrokerProcess):
    with ExitStack() as held:
        assert 200 in statuses([connect(broker, get("/events/overview"), held) for _ in range(100)])
        with closing(http.client.HTTPConnection(*address(broker), timeout=deadline_s())) as connection:
            connection.request("GET", "/events/groups")
            answer = connection.getresponse()
            assert answer.status == 503
            assert int(answer.getheader("retry-after", "0")) > 0
            assert answer.getheader("connection") == "close"
        assert json.loads(ask(broker, "/view/groups")[2])["ready"]
    wait_until(lambda: metric(broker, "rotunda_web_streams") == 0, "the end of the streams")


def test_who_does_not_read_is_dropped(broker: BrokerProcess):
    """Requests without end on one connection whose responses are never read."""
    with ExitStack() as held:
        connection = held.enter_context(socket.socket())
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        connection.connect(address(broker))
        connection.setblocking(False)

        def ended() -> bool:
            try:
                return connection.send(get("/status.json")) < 0
            except BlockingIOError:
                return False
            except OSError:
                return True

        wait_until(ended, "the end of the connection")
    wait_until(lambda: metric(broker, f'{DROPPED}{{cause="slow_reader"}}') > 0, "slow readers among the dropped")
    assert_is_served(broker)
