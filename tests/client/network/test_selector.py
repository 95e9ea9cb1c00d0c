"""The selector over real sockets, with a peer that the test controls."""

from __future__ import annotations

import os
import socket
import ssl
import struct
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager

import pytest

from rotunda.broker.client.access import PLAIN_TEXT, Access
from rotunda.broker.client.errors import IllegalState
from rotunda.broker.client.network.addresses import Address
from rotunda.broker.client.network.channel import ChannelPhase, Endpoint
from rotunda.broker.client.network.network_config import NetworkConfig
from rotunda.broker.client.network.requests import NetworkReceive, NetworkSend
from rotunda.broker.client.network.selector import Selector
from rotunda.broker.clock import SystemClock
from tests.support.deadline import deadline_s, wait_until
from tests.support.fakes import FakeClock

HOST = "127.0.0.1"


class Listener:
    """A listening socket, which closes the connections it has accepted."""

    def __init__(self) -> None:
        self._sockets = ExitStack()
        self._listening = self._sockets.enter_context(socket.create_server((HOST, 0)))
        self._listening.settimeout(deadline_s())
        self.endpoint = Endpoint(Address(socket.AF_INET, HOST), HOST, self._listening.getsockname()[1])

    def accept(self) -> socket.socket:
        peer = self._sockets.enter_context(self._listening.accept()[0])
        peer.settimeout(deadline_s())
        return peer

    def close(self) -> None:
        self._sockets.close()


@pytest.fixture
def listener() -> Iterator[Listener]:
    """Return a listening socket."""
    made = Listener()
    yield made
    made.close()


@pytest.fixture
def selector() -> Iterator[Selector]:
    """Return a selector on the machine's clock."""
    with closing(Selector(NetworkConfig(), PLAIN_TEXT, SystemClock())) as made:
        yield made


@contextmanager
def closing(made: Selector) -> Iterator[Selector]:
    try:
        yield made
    finally:
        made.close()


def connect(selector: Selector, listener: Listener, node_id: int = 1) -> socket.socket:
    """Connect and return the other side's socket."""
    selector.connect(node_id, listener.endpoint, -1, -1)
    poll_until(selector, lambda: node_id in selector.connected)
    return listener.accept()


def poll_until(selector: Selector, is_so: Callable[[], bool]) -> None:
    def polled() -> bool:
        if not is_so():
            selector.poll(20)
        return is_so()

    wait_until(polled, "the expected events")


def frame(content: bytes) -> bytes:
    return struct.pack(">i", len(content)) + content


def content_of(receive: NetworkReceive) -> bytes:
    return bytes(receive.buffer[receive.offset : receive.end])


def received(selector: Selector, count: int) -> list[bytes]:
    """Poll until that many responses have arrived."""
    found: list[bytes] = []

    def has_arrived() -> bool:
        selector.poll(20)
        found.extend(map(content_of, selector.completed_receives))
        return len(found) >= count

    wait_until(has_arrived, "responses")
    return found


def test_g37_sockets_keep_alive_send_without_delay_and_have_the_buffers_asked_for(
    selector: Selector, listener: Listener
) -> None:
    selector.connect(1, listener.endpoint, 65536, 32768)
    selector.connect(2, listener.endpoint, -1, -1)
    fd_of = {node_id: channel.transport.fileno() for node_id, channel in selector._channels.items()}
    sockets = {node_id: socket.socket(fileno=socket.dup(fd)) for node_id, fd in fd_of.items()}
    for each in sockets.values():
        assert each.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE)
        assert each.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)
        assert each.gettimeout() is None or not each.getblocking()
    given, system = (
        [sockets[node_id].getsockopt(socket.SOL_SOCKET, each) for each in (socket.SO_SNDBUF, socket.SO_RCVBUF)]
        for node_id in (1, 2)
    )
    assert given == [2 * 65536, 2 * 32768], "the kernel doubles the requested size"
    assert system != given
    for each in sockets.values():
        each.close()


def test_g37_an_immediate_connection_needs_no_event(
    selector: Selector, listener: Listener, monkeypatch: pytest.MonkeyPatch
) -> None:
    def connect_at_once(self: socket.socket, address: object) -> int:
        self.setblocking(True)
        self.connect(address)  # type: ignore[arg-type]
        self.setblocking(False)
        return 0

    monkeypatch.setattr(socket.socket, "connect_ex", connect_at_once)
    selector.connect(1, listener.endpoint, -1, -1)
    selector.poll(60_000)
    assert selector.connected == [1]
    assert selector.is_channel_ready(1)


def test_responses_are_read_from_any_pieces(selector: Selector, listener: Listener) -> None:
    peer = connect(selector, listener)
    contents = [b"four", b"x" * 200_000, b"more", b"y" * 70_000, b"last"]
    wire = b"".join(map(frame, contents))
    found: list[bytes] = []
    for start, end in [(0, 1), (1, 3), (3, 9), (9, 100_000), (100_000, 200_016), (200_016, len(wire))]:
        peer.sendall(wire[start:end])
        selector.poll(20)
        found += map(content_of, selector.completed_receives)
    found += received(selector, len(contents) - len(found))
    assert found == contents


def test_a_request_is_sent_from_its_buffers_also_in_partial_writes(selector: Selector, listener: Listener) -> None:
    peer = connect(selector, listener)
    # More buffers than one system call accepts, and more bytes than a socket does.
    parts = [bytes([number % 251]) * (1 + number % 7) for number in range(3000)]
    large = [memoryview(bytes([number]) * 3_000_000) for number in range(3)]
    send = NetworkSend(1, [*parts, *large])
    selector.send(send)
    assert not send.completed
    with pytest.raises(IllegalState):
        selector.send(NetworkSend(1, [b"too early"]))
    arrived = bytearray()
    reading = threading.Thread(target=lambda: _read(peer, arrived, send.size))
    reading.start()
    poll_until(selector, lambda: send.completed)
    assert selector.completed_sends == [send]
    reading.join(deadline_s())
    assert arrived == b"".join([*parts, *large])
    small = NetworkSend(1, [b"a", b"b"])
    selector.send(small)
    assert small.completed, "it has left within send"
    selector.poll(0)
    assert selector.completed_sends == []
    assert (selector.traffic[1].requests, selector.traffic[1].bytes_sent) == (2, send.size + 2)


def _read(peer: socket.socket, into: bytearray, size: int) -> None:
    while len(into) < size:
        into += peer.recv(1 << 20)


def test_g31_the_end_of_a_connection_is_reported_after_its_responses(selector: Selector, listener: Listener) -> None:
    peer = connect(selector, listener)
    peer.sendall(frame(b"last words") + b"\0\0")
    peer.close()
    found: list[bytes] = []

    def has_ended() -> bool:
        selector.poll(20)
        found.extend(map(content_of, selector.completed_receives))
        return 1 in selector.disconnected

    wait_until(has_ended, "the end of the connection")
    assert found == [b"last words"]
    assert selector.disconnected[1].phase is ChannelPhase.READY
    assert not selector.is_channel_ready(1)
    connect(selector, listener).close()


def test_g31_a_rejected_connection_is_reported(selector: Selector, listener: Listener) -> None:
    endpoint = listener.endpoint
    listener.close()
    selector.connect(1, endpoint, -1, -1)
    poll_until(selector, lambda: 1 in selector.disconnected)
    assert selector.disconnected[1].phase is ChannelPhase.NOT_CONNECTED
    assert selector.disconnected[1].remote == f"{HOST}:{endpoint.port}"


def test_g31_a_write_that_fails_is_reported_in_the_next_poll(selector: Selector, listener: Listener) -> None:
    peer = connect(selector, listener)
    peer.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    peer.close()

    def fails() -> bool:
        if selector.is_channel_ready(1):
            selector.send(NetworkSend(1, [b"into the void"]))
        return not selector.is_channel_ready(1)

    wait_until(fails, "a write that fails")
    selector.poll(60_000)
    assert 1 in selector.disconnected


@pytest.mark.parametrize("wire", [struct.pack(">i", -1), b"HTTP/1.1 400 Bad Request", struct.pack(">i", 3) + b"abc"])
def test_g31_an_invalid_response_ends_the_connection(
    selector: Selector, listener: Listener, wire: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    peer = connect(selector, listener)
    peer.sendall(wire)
    poll_until(selector, lambda: 1 in selector.disconnected)
    assert "a response of" in caplog.text
    assert selector.completed_receives == []


def test_g31_idle_connections_end_one_at_a_time_the_longest_unused_first(listener: Listener) -> None:
    clock = FakeClock()
    with closing(Selector(NetworkConfig(connections_max_idle_ms=1000), PLAIN_TEXT, clock)) as selector:
        peers = {node_id: connect(selector, listener, node_id) for node_id in (1, 2, 3)}
        clock.advance_ms(900)
        peers[1].sendall(frame(b"used"))
        assert received(selector, 1) == [b"used"]
        clock.advance_ms(101)
        ended = []
        for _ in range(4):
            selector.poll(0)
            ended += [(node_id, state.phase) for node_id, state in selector.disconnected.items()]
        assert ended == [(2, ChannelPhase.EXPIRED), (3, ChannelPhase.EXPIRED)]
        clock.advance_ms(900)
        selector.poll(0)
        assert list(selector.disconnected) == [1]
        for peer in peers.values():
            peer.close()


@pytest.mark.parametrize("how", ["a name that no certificate has", "an error of the socket"])
def test_g31_tls_that_cannot_even_be_begun_ends_the_connection(
    listener: Listener, how: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails(_: ssl.SSLContext, sock: socket.socket, **named: object) -> None:
        assert named
        socket.close(sock.detach())
        raise ConnectionResetError("between the connection and TLS")

    host = HOST if how == "an error of the socket" else ".invalid"
    if host == HOST:
        monkeypatch.setattr(ssl.SSLContext, "wrap_socket", fails)
    access = Access(protocol="SSL", context=ssl.create_default_context())
    with closing(Selector(NetworkConfig(), access, SystemClock())) as selector:
        for _ in range(2):
            selector.connect(1, listener.endpoint._replace(host=host), -1, -1)
            poll_until(selector, lambda: 1 in selector.disconnected)
            failed = selector.disconnected[1].phase is ChannelPhase.AUTHENTICATION_FAILED
            assert failed == (host != HOST)
            assert not selector._interest
            selector.poll(0)


def test_no_wake_up_is_lost_and_only_those_of_a_waiting_thread_cost_a_system_call(
    selector: Selector, monkeypatch: pytest.MonkeyPatch
) -> None:
    written = []
    write = os.eventfd_write
    monkeypatch.setattr(os, "eventfd_write", lambda fd, value: (written.append(value), write(fd, value)))
    for _ in range(1000):
        selector.wakeup()
    assert written == [], "nobody waits"
    selector.poll(600_000)
    asked, done = [0], [0]
    stop = threading.Event()

    def work() -> None:
        while not stop.is_set():
            selector.poll(600_000)
            done[0] = asked[0]

    working = threading.Thread(target=work)
    working.start()
    for number in range(1, 301):
        asked[0] = number
        selector.wakeup()
        wait_until(lambda: done == asked, "the other thread is woken")
    stop.set()
    selector.wakeup()
    working.join(deadline_s())
    assert not working.is_alive()


def test_a_wake_up_during_a_close_writes_to_no_other_file() -> None:
    selector = Selector(NetworkConfig(), PLAIN_TEXT, SystemClock())
    # As the caller of a wake-up sees it that was stopped between its look and its call.
    selector._is_selecting = True
    with closing(selector):
        wake_fd = selector._wake_fd
    another = os.eventfd(0, os.EFD_NONBLOCK)
    try:
        if another != wake_fd:
            os.dup2(another, wake_fd)
        selector.wakeup()
        with pytest.raises(BlockingIOError):
            os.eventfd_read(another)
    finally:
        for fd in {another, wake_fd}:
            os.close(fd)


def test_closing_a_channel_is_not_reported_and_makes_room_for_another(selector: Selector, listener: Listener) -> None:
    peer = connect(selector, listener)
    with pytest.raises(IllegalState):
        selector.connect(1, listener.endpoint, -1, -1)
    selector.close_channel(1)
    selector.close_channel(1)
    assert peer.recv(1) == b""
    selector.poll(0)
    assert selector.disconnected == {}
    connect(selector, listener).close()
    assert selector.counts.connections_created == 2
    assert selector.counts.connections_closed == 1
