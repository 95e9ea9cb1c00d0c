"""Both ends of the hand-off, over a real pair, and the recovery of a replacement of either end."""

import socket
from collections.abc import Iterator

import pytest

from rotunda.broker.network.handoff import (
    Closed,
    CloseOrder,
    HandoffReceiver,
    HandoffSender,
    Hello,
    NewConnection,
    Obeyed,
    OpenConnection,
    Reconciliation,
    SocketsTaken,
)

Pair = tuple[socket.socket, socket.socket]


@pytest.fixture
def pair() -> Iterator[Pair]:
    ends = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    for end in ends:
        end.setblocking(False)
    yield ends
    for end in ends:
        end.close()


@pytest.fixture
def client() -> Iterator[socket.socket]:
    with socket.socket() as sock:
        yield sock


def receive(receiver: HandoffReceiver) -> list[NewConnection]:
    received = receiver.receive_some()
    for each in received:
        each.socket.close()
    return received


@pytest.mark.parametrize("host", ["127.0.0.1", "192.168.7.9", "::1", "2001:db8::7", "fe80::1%lo"])
def test_a_connection_arrives_with_all_that_is_known_of_it(pair: Pair, client: socket.socket, host: str) -> None:
    sender, receiver = HandoffSender(pair[0]), HandoffReceiver(pair[1])
    assert sender.try_send(client, serial=77, listener=2, peer=(host, 65535))
    (new,) = receiver.receive_some()
    assert (new.serial, new.listener, new.peer_host, new.peer_port) == (77, 2, host.partition("%")[0], 65535)
    assert new.socket.gettimeout() == 0.0
    assert new.socket.family == client.family
    assert list(sender.reports()) == [SocketsTaken((77,))]
    new.socket.close()


def test_receiving_stops_at_the_limit(pair: Pair, client: socket.socket) -> None:
    sender, receiver = HandoffSender(pair[0]), HandoffReceiver(pair[1])
    for serial in range(5):
        assert sender.try_send(client, serial, 0, ("127.0.0.1", 1))
    first = receiver.receive_some(limit=3)
    assert [each.serial for each in first] == [0, 1, 2]
    assert [each.serial for each in receive(receiver)] == [3, 4]
    assert receive(receiver) == []
    for each in first:
        each.socket.close()


def test_closes_are_reported_once_and_in_few_messages(pair: Pair, client: socket.socket) -> None:
    sender, receiver = HandoffSender(pair[0]), HandoffReceiver(pair[1])
    for serial in range(200):
        assert sender.try_send(client, serial, 0, ("127.0.0.1", 1))
        receive(receiver)
        list(sender.reports())
    for serial in (*range(200), 5, 999):
        receiver.report_closed(serial)
    receiver.flush()
    reports = list(sender.reports())
    assert len(reports) == 2
    closed = [serial for report in reports if isinstance(report, Closed) for serial in report.serials]
    assert closed == list(range(200))


def test_a_reconciliation_lists_the_open_connections_of_all_earlier_ones(pair: Pair, client: socket.socket) -> None:
    sender, receiver = HandoffSender(pair[0]), HandoffReceiver(pair[1])
    for serial in range(300):
        assert sender.try_send(client, serial, serial % 3, ("10.1.2.3", 1))
        receive(receiver)
        list(sender.reports())
    receiver.report_closed(4)
    sender.ask_reconciliation(9)
    assert sender.try_send(client, 300, 0, ("10.1.2.3", 1))
    receive(receiver)
    reports = [report for report in sender.reports() if not isinstance(report, SocketsTaken)]
    assert reports[0] == Closed((4,), lost=False)
    assert isinstance(reports[1], Reconciliation)
    assert reports[1].token == 9
    assert reports[1].connections == tuple(
        OpenConnection(serial, serial % 3, "10.1.2.3") for serial in range(300) if serial != 4
    )


def test_a_replacement_processor_announces_itself_and_has_its_own_connections(
    pair: Pair, client: socket.socket
) -> None:
    sender, dead = HandoffSender(pair[0]), HandoffReceiver(pair[1])
    dead.hello(1)
    assert sender.try_send(client, 1, 0, ("127.0.0.1", 1))
    receive(dead)
    assert sender.try_send(client, 2, 0, ("127.0.0.1", 1))
    replacement = HandoffReceiver(pair[1])
    replacement.hello(2)
    assert list(sender.reports()) == [Hello(1), SocketsTaken((1,)), Hello(2)]
    sender.ask_reconciliation(5)
    receive(replacement)
    assert list(sender.reports()) == [SocketsTaken((2,)), Reconciliation(5, (OpenConnection(2, 0, "127.0.0.1"),))]


def test_reports_wait_for_room_and_keep_their_order(pair: Pair, client: socket.socket) -> None:
    pair[1].setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4608)
    sender, receiver = HandoffSender(pair[0]), HandoffReceiver(pair[1])
    for serial in range(20):
        assert sender.try_send(client, serial, 0, ("127.0.0.1", 1))
        receive(receiver)
    assert receiver.wants_write
    received: list[int] = []
    while len(received) < 20:
        received += [
            serial for report in sender.reports() if isinstance(report, SocketsTaken) for serial in report.serials
        ]
        receiver.flush()
    assert received == list(range(20))
    assert not receiver.wants_write


def test_a18_an_order_follows_earlier_connections_and_its_report_follows_the_closes(
    pair: Pair, client: socket.socket
) -> None:
    sender, receiver = HandoffSender(pair[0]), HandoffReceiver(pair[1])
    for serial in range(3):
        assert sender.try_send(client, serial, 0, ("127.0.0.1", 1))
    sender.order_excess(CloseOrder(7, 1, -1))
    assert sender.try_send(client, 3, 0, ("127.0.0.1", 1))
    assert [each.serial for each in receive(receiver)] == [0, 1, 2]
    assert receiver.order == CloseOrder(7, 1, -1)
    # Later messages are not received before it is carried out.
    assert receiver.receive_some() == []
    receiver.report_closed(1)
    receiver.obeyed()
    assert receiver.order is None
    later = receiver.receive_some()
    assert [each.serial for each in later] == [3]
    later[0].socket.close()
    reports = [report for report in sender.reports() if not isinstance(report, SocketsTaken)]
    assert reports == [Closed((1,), lost=False), Obeyed(7)]
