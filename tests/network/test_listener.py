"""Binding and listening, with real sockets (`A02`, `A04`)."""

import socket
from collections.abc import Iterator
from contextlib import ExitStack

import psutil
import pytest

from rotunda.broker.config.listeners import Listener
from rotunda.broker.errors import BootFailed
from rotunda.broker.ipc.process_context import BoundListener
from rotunda.broker.network.acceptor.listener import bind, listen


def plaintext(host: str, port: int = 0) -> Listener:
    return Listener("PLAINTEXT", host, port, "PLAINTEXT")


@pytest.fixture
def closing() -> Iterator[ExitStack]:
    with ExitStack() as stack:
        yield stack


def bound(
    closing: ExitStack, wanted: Listener, reported: Listener | None = None, buffer_bytes: int = -1
) -> BoundListener:
    listener = bind(wanted, reported or wanted, buffer_bytes, 0)
    closing.callback(listener.socket.close)
    return listener


def test_port_0_becomes_a_number_that_is_advertised(closing: ExitStack) -> None:
    listener = bound(closing, plaintext("127.0.0.1"))
    assert listener.port == listener.advertised_port > 0
    assert listener.socket.getsockname() == ("127.0.0.1", listener.port)


def test_an_advertised_address_stays_as_it_is(closing: ExitStack) -> None:
    listener = bound(closing, plaintext("127.0.0.1"), plaintext("broker.example", 9999))
    assert (listener.advertised_host, listener.advertised_port) == ("broker.example", 9999)


def test_it_rejects_until_it_listens(closing: ExitStack) -> None:
    listener = bound(closing, plaintext("127.0.0.1"))
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(("127.0.0.1", listener.port))
    listen(listener, 5)
    socket.create_connection(("127.0.0.1", listener.port)).close()


def test_a_listening_socket_has_the_options_of_the_settings(closing: ExitStack) -> None:
    sock = bound(closing, plaintext("127.0.0.1"), buffer_bytes=50_000).socket
    assert sock.getsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR) == 1
    assert sock.getsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF) == 100_000  # the kernel doubles it
    assert sock.gettimeout() == 0.0


def test_connections_inherit_the_receive_buffer(closing: ExitStack) -> None:
    listener = bound(closing, plaintext("127.0.0.1"), buffer_bytes=50_000)
    listen(listener, 5)
    with socket.create_connection(("127.0.0.1", listener.port)):
        accepted, _ = listener.socket.accept()
        with accepted:
            assert accepted.getsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF) == 100_000


def test_a_port_in_use_is_exit_code_4() -> None:
    with socket.create_server(("127.0.0.1", 0)) as received:
        with pytest.raises(BootFailed, match="port is in use") as failure:
            bind(plaintext("127.0.0.1", received.getsockname()[1]), plaintext("x"), -1, 0)
        assert failure.value.exit_code == 4


def test_a_port_used_between_bind_and_listen_is_exit_code_4(closing: ExitStack) -> None:
    first = bound(closing, plaintext("127.0.0.1"))
    second = bound(closing, plaintext("127.0.0.1", first.port))
    listen(first, 5)
    with pytest.raises(BootFailed, match="port is in use") as failure:
        listen(second, 5)
    assert failure.value.exit_code == 4


def test_an_address_that_is_not_ours_fails_with_its_name() -> None:
    for host in ("192.0.2.1", "no-such-host.invalid"):
        with pytest.raises(BootFailed, match=host):
            bind(plaintext(host), plaintext(host), -1, 0)


def test_an_empty_host_is_every_interface(closing: ExitStack) -> None:
    listener = bound(closing, plaintext(""))
    listen(listener, 5)
    for host in ("127.0.0.1", "127.0.0.2"):
        with socket.create_connection((host, listener.port)) as client:
            assert client.getpeername() == (host, listener.port)


def link_local() -> str | None:
    """Return a link-local address of this machine, with its interface."""
    found = ((name, each) for name, of_one in psutil.net_if_addrs().items() for each in of_one)
    here = [each.address for _, each in found if each.family == socket.AF_INET6 and each.address.startswith("fe80:")]
    return here[0] if here else None


@pytest.mark.skipif(link_local() is None, reason="no interface has a link-local address")
def test_a04_a_link_local_address_is_bound_at_its_interface(closing: ExitStack) -> None:
    host = link_local()
    assert host is not None
    listener = bound(closing, plaintext(host))
    name = listener.socket.getsockname()
    assert (name[0], socket.if_indextoname(name[3])) == tuple(host.split("%"))
    listen(listener, 5)
    socket.create_connection((host, listener.port)).close()


@pytest.mark.parametrize("host", ["a..b", "x" * 64])
def test_a_host_that_cannot_be_a_name_is_one_line(host: str) -> None:
    with pytest.raises(BootFailed, match=f"cannot listen on PLAINTEXT://{host}:0: invalid host name {host}"):
        bind(plaintext(host), plaintext(host), -1, 0)


def test_c18_without_an_advertised_host_the_advertised_port_is_that_which_is_set(closing: ExitStack) -> None:
    entry = bound(closing, plaintext("127.0.0.1"), plaintext("", 19092)).entry
    assert (entry.advertised_host, entry.advertised_port, entry.reached_port) == ("127.0.0.1", 19092, 19092)
