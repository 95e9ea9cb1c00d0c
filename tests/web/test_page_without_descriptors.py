"""The page without descriptors: one line now and then, no connection is lost for good, and the page recovers."""

import errno
import http.client
import os
import resource
import socket
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path

import pytest

from rotunda.web.http.listening_socket import ListeningSocket
from tests.support.broker_process import PAGE, BrokerProcess
from tests.support.deadline import deadline_s, wait_until
from tests.support.status_page import address, ask

pytestmark = pytest.mark.slow

#: Fewer than the web process has open.
FEW = 10
CLIENTS = 30
LINE = "status page: cannot serve a connection or request: [Errno 24] Too many open files; raise the limit"


@contextmanager
def limited(pid: int) -> Iterator[None]:
    """Prevent a process from opening anything more."""
    soft, hard = resource.prlimit(pid, resource.RLIMIT_NOFILE)
    resource.prlimit(pid, resource.RLIMIT_NOFILE, (FEW, hard))
    try:
        yield
    finally:
        resource.prlimit(pid, resource.RLIMIT_NOFILE, (soft, hard))


def code_of(connection: http.client.HTTPConnection, path: str) -> int:
    connection.request("GET", path)
    answer = connection.getresponse()
    answer.read()
    return answer.status


def test_it_fails_once_and_then_rests_until_it_is_tried_again() -> None:
    """So that asyncio, which accepts many times in a turn, plans one attempt and not as many as it has made."""
    now_s = 100.0
    with (
        closing(ListeningSocket(socket.create_server(("127.0.0.1", 0)), lambda: now_s)) as listening,
        ExitStack() as held,
    ):
        client = held.enter_context(socket.create_connection(listening.getsockname()))
        # Numbers below the limit may be free.
        for _ in range(FEW):
            held.enter_context(socket.socket())
        with limited(os.getpid()):
            for _ in range(2):
                with pytest.raises(OSError, match="Too many open files") as failure:
                    listening.accept()
                assert failure.value.errno == errno.EMFILE
                for _ in range(3):
                    with pytest.raises(BlockingIOError):
                        listening.accept()
                now_s += 1.0
        connection, where = listening.accept()
        connection.close()
        assert where == client.getsockname()


def test_the_page_says_so_now_and_then_and_serves_who_has_waited(tmp_path: Path) -> None:
    broker = BrokerProcess(tmp_path, {**PAGE, "num.network.threads": 1, "num.io.threads": 1})
    broker.start()
    try:
        assert ask(broker, "/healthz")[0] == 200
        [web] = broker.processes("web")
        with ExitStack() as held:
            # One is connected before: its request needs descriptors too.
            asking = held.enter_context(closing(http.client.HTTPConnection(*address(broker), timeout=deadline_s())))
            assert code_of(asking, "/healthz") == 200
            with limited(web["pid"]):
                waiting = [held.enter_context(socket.create_connection(address(broker), 60)) for _ in range(CLIENTS)]
                for each in waiting:
                    each.sendall(b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n")
                wait_until(lambda: LINE in broker.log_text(), "the line")
                for path in ("/metrics", "/readyz", "/static/live.js"):
                    assert code_of(asking, path) in (200, 503), path
            for each in waiting:
                assert each.recv(65536).startswith(b"HTTP/1.1 200")
        assert ask(broker, "/metrics")[0] == 200
        said = broker.log_text()
        assert "Traceback" not in said
        assert 1 <= said.count(LINE) <= 3, said
    finally:
        broker.stop()
