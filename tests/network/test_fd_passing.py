"""Descriptors over a SOCK_SEQPACKET pair: real sockets, real limits."""

import contextlib
import fcntl
import os
import resource
import socket
from collections.abc import Iterator

import pytest

from rotunda.broker.network.fd_passing import send_fd, try_receive

Pair = tuple[socket.socket, socket.socket]


@pytest.fixture
def pair() -> Iterator[Pair]:
    ends = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    yield ends
    for end in ends:
        end.close()


def open_fds() -> set[str]:
    return set(os.listdir("/proc/self/fd"))


def plug_the_rest() -> list[int]:
    """Open descriptors until the limit is reached."""
    plugs = []
    with contextlib.suppress(OSError):
        for _ in range(100_000):
            plugs.append(os.dup(0))  # noqa: PERF401 - what was opened must be known when it fails
    return plugs


def test_a_descriptor_arrives_with_its_message_and_close_on_exec(pair: Pair) -> None:
    reader, writer = os.pipe()
    assert send_fd(pair[0], b"hello", writer)
    os.close(writer)
    received = try_receive(pair[1], 100)
    assert received is not None
    assert received.payload == b"hello"
    assert not received.truncated
    assert fcntl.fcntl(received.fd, fcntl.F_GETFD) & fcntl.FD_CLOEXEC
    os.write(received.fd, b"x")
    assert os.read(reader, 1) == b"x"
    os.close(received.fd)
    os.close(reader)


def test_nothing_there_is_none_and_a_closed_peer_is_empty(pair: Pair) -> None:
    assert try_receive(pair[1], 100) is None
    pair[0].close()
    received = try_receive(pair[1], 100)
    assert received is not None
    assert received.payload == b""


def test_a_full_pair_is_false_and_loses_nothing(pair: Pair) -> None:
    pair[0].setblocking(False)
    sent = 0
    while send_fd(pair[0], sent.to_bytes(4, "big"), pair[0].fileno()):
        sent += 1
    assert sent > 20
    for number in range(sent):
        received = try_receive(pair[1], 100)
        assert received is not None
        assert int.from_bytes(received.payload, "big") == number
        os.close(received.fd)
    assert try_receive(pair[1], 100) is None


def test_a_message_without_a_descriptor(pair: Pair) -> None:
    pair[0].send(b"plain")
    assert try_receive(pair[1], 100) == (b"plain", -1, False)


def test_more_than_one_descriptor_is_rejected_whole_and_leaks_none(pair: Pair) -> None:
    before = open_fds()
    socket.send_fds(pair[0], [b"two"], [0, 1])
    received = try_receive(pair[1], 100)
    assert received == (b"two", -1, True)
    assert open_fds() == before


def test_a_receiver_without_a_free_descriptor_gets_the_message_alone(pair: Pair) -> None:
    """`A33`: control data cut off by the receiver's own EMFILE is reported and the message still read."""
    assert send_fd(pair[0], b"lost", pair[0].fileno())
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    highest = max(int(fd) for fd in open_fds())
    free = {fd for fd in range(highest) if not os.path.lexists(f"/proc/self/fd/{fd}")}
    plugs = [os.dup(0) for _ in free]
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (max(plugs, default=highest) + 1, hard))
        plugs += plug_the_rest()
        received = try_receive(pair[1], 100)
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
        for plug in plugs:
            os.close(plug)
    assert received == (b"lost", -1, True)
