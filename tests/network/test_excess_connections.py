"""The connections that a processor closes on the acceptor's order (`A17`, `A18`)."""

from __future__ import annotations

from rotunda.broker.network.handoff import CloseOrder, Obeyed
from tests.support.processor_bench import Client, ProcessorBench
from tests.support.wire_client import request_frame

METADATA = 3


def active(bench: ProcessorBench, *clients: Client) -> None:
    """Send a request from each client, one after the other, and the responses."""
    for client in clients:
        bench.clock.advance_ms(10)
        client.send(request_frame(METADATA, 4, 1))
        (request,) = bench.requests(1)
        bench.targets[0].answer(request, b"\0\0\0\0")
        client.receive(4)


def order(bench: ProcessorBench, left: int, protected: int = -1) -> None:
    """Order a processor to close connections, and wait until it has."""
    bench.acceptor.order_excess(CloseOrder(1, left, protected))
    reports: list[object] = []

    def obeyed() -> bool:
        reports.extend(bench.acceptor.reports())
        return Obeyed(1) in reports

    bench.turn_until(obeyed, "the order is carried out")


def ended(bench: ProcessorBench, clients: list[Client]) -> list[bool]:
    """Return whether each client's connection is closed."""
    bench.run_once(2)
    for client in clients:
        client.read()
    return [client.ended for client in clients]


def test_a17_those_that_have_been_silent_longest_are_closed(bench: ProcessorBench) -> None:
    clients = [bench.connect() for _ in range(5)]
    active(bench, *(clients[number] for number in (3, 0, 4, 1, 2)))
    order(bench, left=2)
    assert ended(bench, clients) == [True, False, False, True, True]
    assert bench.value("connections_closed", "excess") == 3
    active(bench, clients[1], clients[2])


def test_a18_no_more_are_closed_than_are_too_many_when_the_order_is_read(bench: ProcessorBench) -> None:
    """A client that has left meanwhile is not replaced by another one."""
    clients = [bench.connect() for _ in range(4)]
    clients[2].sock.close()
    bench.wait_closed(clients[2])
    order(bench, left=3)
    assert bench.value("connections_closed", "excess") == 0
    order(bench, left=3)
    order(bench, left=7)
    assert bench.value("connections_closed", "excess") == 0
    order(bench, left=0)
    assert bench.value("connections_closed", "excess") == 3


def test_a17_one_that_is_about_to_be_closed_is_first(bench: ProcessorBench) -> None:
    clients = [bench.connect(send_buffer=4096, receive_buffer=4096) for _ in range(3)]
    clients[1].send(request_frame(METADATA, 4, 1))
    clients[1].send(request_frame(METADATA, 4, 2))
    first, second = bench.requests(2)
    # The close waits for the previous response, which the client does not read.
    bench.targets[0].answer(first, bytes(200_000))
    bench.targets[0].close_connection(second)
    bench.run_once(3)
    active(bench, clients[0], clients[2])
    order(bench, left=2)
    assert bench.value("connections_closed", "excess") == 1
    assert ended(bench, clients) == [False, True, False]


def test_a16_the_protected_listener_is_not_concerned(bench: ProcessorBench) -> None:
    clients = [bench.connect(listener=number % 2) for number in range(6)]
    order(bench, left=1, protected=1)
    assert ended(bench, clients) == [True, False, True, False, False, False]
