"""The acceptor at each limit: connections wait, are closed immediately or later, or replace others."""

from __future__ import annotations

import random
import socket

import pytest

from rotunda.broker.network.acceptor.connection_limits import ConnectionLimits, ListenerLimits
from rotunda.broker.network.acceptor.descriptors import Descriptors
from rotunda.broker.network.acceptor.parked_sockets import ParkedSockets
from rotunda.broker.network.handoff import CloseOrder, HandoffReceiver
from tests.support.acceptor_bench import AcceptorBench, accepting, is_ended, run_until
from tests.support.sockets import is_readable

MS_NS = 1_000_000
CLIENTS, ADMINS = 0, 1


def accepted(bench: AcceptorBench, listener: int = CLIENTS) -> int:
    """Return how many connections were accepted."""
    return bench.metric("connections_accepted", listener)


def is_open(client: socket.socket) -> bool:
    """Return whether a client has received no bytes and no end of stream."""
    return not is_readable(client, 0)


def end_one(bench: AcceptorBench, processor: int = 0) -> None:
    """Receive a processor's new connections, and report one of them closed."""
    new = bench.take(processor)[0]
    bench.receivers[processor].report_closed(new.serial)
    bench.receivers[processor].flush()


def test_a08_beyond_max_connections_others_wait_until_one_ends(caplog: pytest.LogCaptureFixture) -> None:
    """No connection is rejected: the listener is not polled, with one connection held."""
    with accepting(ConnectionLimits(total=3)) as bench:
        bench.connect(count=5)
        run_until(bench, lambda: accepted(bench) == 4)
        assert bench.acceptor.quotas.total == 3
        assert "max.connections" in caplog.text
        end_one(bench)
        run_until(bench, lambda: accepted(bench) == 5)
        assert bench.acceptor.quotas.total == 3
        assert bench.metric("connections_refused", CLIENTS) == 0


def test_a08_a26_a_higher_limit_accepts_waiting_clients() -> None:
    with accepting(ConnectionLimits(total=3)) as bench:
        bench.connect(count=5)
        run_until(bench, lambda: accepted(bench) == 4)
        bench.acceptor.set_limits(ConnectionLimits(total=5))
        run_until(bench, lambda: bench.acceptor.quotas.total == 5)
        assert accepted(bench) == 5
        assert all(is_open(client) for client in bench.clients)


def test_a08_a_free_slot_is_for_the_listener_with_the_longest_wait() -> None:
    """Otherwise a listener with a constant stream of clients would get every slot."""
    with accepting(ConnectionLimits(total=2)) as bench:
        bench.connect(CLIENTS, count=2)
        run_until(bench, lambda: bench.acceptor.quotas.total == 2)
        bench.connect(ADMINS, count=2)
        run_until(bench, lambda: accepted(bench, ADMINS) == 1)
        bench.connect(CLIENTS, count=2)
        run_until(bench, lambda: accepted(bench) == 3)
        end_one(bench)
        run_until(bench, lambda: bench.acceptor.quotas.by_listener[:2] == [1, 1])
        end_one(bench, processor=1)
        run_until(bench, lambda: accepted(bench) == 4)
        assert bench.acceptor.quotas.total == 2


def test_a16_the_protected_listener_is_let_in_when_the_broker_is_full() -> None:
    """No connection is closed for it: the others are within their limit."""
    with accepting(ConnectionLimits(total=2, protected=ADMINS)) as bench:
        bench.connect(CLIENTS, count=3)
        run_until(bench, lambda: accepted(bench) == 3)
        bench.connect(ADMINS, count=4)
        run_until(bench, lambda: bench.acceptor.quotas.by_listener[ADMINS] == 4)
        assert bench.acceptor.quotas.by_listener[CLIENTS] == 2


def test_a10_a32_a_listener_that_is_too_fast_waits_and_the_other_does_not() -> None:
    """A11's vector: the 51st waits 200 ms, held, and so does its listener; its client does not notice."""
    listeners = (ListenerLimits(rate=5), ListenerLimits())
    with accepting(ConnectionLimits(listeners=listeners)) as bench:
        bench.connect(CLIENTS, count=30)
        run_until(bench, lambda: bench.acceptor.quotas.total == 30)
        bench.take(0)
        bench.take(1)
        bench.connect(CLIENTS, count=25)
        run_until(bench, lambda: accepted(bench) == 51)
        bench.connect(ADMINS, count=2)
        run_until(bench, lambda: bench.acceptor.quotas.by_listener[:2] == [50, 2])
        assert bench.metric("accept_throttled", CLIENTS) == 1
        assert bench.metric("accept_throttle_ns", CLIENTS) == 200 * MS_NS
        for number in range(5):
            bench.clock.advance_ms(199)
            bench.acceptor.step()
            assert bench.acceptor.quotas.by_listener[CLIENTS] == 50 + number
            bench.clock.advance_ms(1)
            run_until(bench, lambda wanted=51 + number: bench.acceptor.quotas.by_listener[CLIENTS] == wanted)
            # The next one is accepted immediately.
            bench.acceptor.step()
        assert bench.metric("blocked_ns", CLIENTS) == 1000 * MS_NS
        assert bench.metric("blocked_ns", ADMINS) == 0
        assert all(is_open(client) for client in bench.clients)


def test_a10_a_higher_rate_does_not_end_a_wait() -> None:
    """As in Kafka; and the wait is at most a second."""
    with accepting(ConnectionLimits(rate=0)) as bench:
        bench.connect()
        run_until(bench, lambda: accepted(bench) == 1)
        bench.acceptor.set_limits(ConnectionLimits())
        bench.clock.advance_ms(999)
        bench.acceptor.step()
        assert bench.acceptor.quotas.total == 0
        bench.clock.advance_ms(1)
        run_until(bench, lambda: bench.acceptor.quotas.total == 1)


def test_a12_a_connection_of_an_address_that_is_too_fast_is_closed_later_and_counted_nowhere() -> None:
    with accepting(ConnectionLimits(address_rates={"127.0.0.1": 1})) as bench:
        bench.connect(count=12)
        run_until(bench, lambda: accepted(bench) == 12)
        assert bench.acceptor.quotas.total == 10
        late = bench.clients[10:]
        assert all(is_open(client) for client in bench.clients)
        assert bench.metric("connections_parked") == 2
        assert bench.metric("ip_accept_throttled", CLIENTS) == 2
        assert bench.metric("ip_accept_throttle_ns", CLIENTS) == 2000 * MS_NS
        bench.clock.advance_ms(999)
        bench.acceptor.step()
        assert all(is_open(client) for client in late)
        bench.clock.advance_ms(1)
        bench.acceptor.step()
        assert all(is_ended(client) for client in late)
        assert bench.metric("connections_parked") == 0
        assert accepted(bench) - bench.metric("connections_closed", CLIENTS) == 10


@pytest.mark.parametrize("seed", [random.randrange(2**32)])
def test_a20_parked_connections_end_each_at_its_own_time(seed: int) -> None:
    """In any order of arrival and with any number of later ones: the next one to end is always the first."""
    print("seed", seed)
    chance = random.Random(seed)
    closed: list[int] = []
    parked = ParkedSockets(closed.append)
    ends = [chance.randrange(1, 1000) for _ in range(300)]
    clients = [socket.socket() for _ in ends]
    for number, (client, end) in enumerate(zip(clients, ends, strict=True)):
        parked.park(client, end, number)
    for now in range(0, 1008, 7):
        parked.close_ended(now)
        assert sorted(closed) == [number for number, end in enumerate(ends) if end <= now]
        assert [client.fileno() == -1 for client in clients] == [end <= now for end in ends]
        assert parked.next_end_ns == min((end for end in ends if end > now), default=0)
    assert [ends[number] for number in closed] == sorted(ends)


def test_a20_there_is_a_most_of_parked_connections_and_a_stop_closes_them() -> None:
    limits = ConnectionLimits(address_rate=0, descriptors=Descriptors(parked=3))
    with accepting(limits) as bench:
        bench.connect(count=5)
        run_until(bench, lambda: accepted(bench) == 5)
        assert bench.metric("connections_parked") == 3
        assert all(is_ended(client) for client in bench.clients[:2])
        bench.acceptor.close()
        assert all(is_ended(client) for client in bench.clients)


def test_a14_excess_connections_of_an_address_are_closed(caplog: pytest.LogCaptureFixture) -> None:
    with accepting(ConnectionLimits(per_address=2, overrides={"127.0.0.9": 1})) as bench:
        bench.connect(count=5)
        run_until(bench, lambda: bench.metric("connections_refused", CLIENTS) == 3)
        assert bench.acceptor.quotas.by_address == {"127.0.0.1": 2}
        assert accepted(bench) - bench.metric("connections_closed", CLIENTS) == 2
        lines = [record.getMessage() for record in caplog.records if "max.connections.per.ip" in record.getMessage()]
        assert len(lines) == 1


def orders(receiver: HandoffReceiver) -> CloseOrder | None:
    """Return the close order that a processor finds after its connections."""
    for new in receiver.receive_some():
        new.socket.close()
    return receiver.order


def test_a17_a18_the_excess_is_ordered_once_from_all_processors_together() -> None:
    """After any number of turns before the processors have obeyed; no further order follows afterwards."""
    with accepting(ConnectionLimits()) as bench:
        bench.connect(count=9)
        run_until(bench, lambda: bench.acceptor.quotas.total == 9)
        received = [bench.take(0), bench.take(1)]
        bench.acceptor.set_limits(ConnectionLimits(total=6))
        for _ in range(3):
            bench.acceptor.step()
        found = [orders(receiver) for receiver in bench.receivers]
        assert [order and order.left for order in found] == [3, 3]
        for receiver, mine in zip(bench.receivers, received, strict=True):
            for new in mine[3:]:
                receiver.report_closed(new.serial)
            receiver.obeyed()
        run_until(bench, lambda: bench.acceptor.quotas.total == 6)
        bench.acceptor.step()
        assert [orders(receiver) for receiver in bench.receivers] == [None, None]


def test_a17_an_order_ends_with_its_processor_and_the_next_waits_for_the_remaining_count() -> None:
    with accepting(ConnectionLimits()) as bench:
        bench.connect(count=4)
        run_until(bench, lambda: bench.acceptor.quotas.total == 4)
        bench.take(0)
        bench.silent = {1}
        bench.acceptor.set_limits(ConnectionLimits(total=3))
        bench.acceptor.step()
        # The acceptor does not wait for the blocked processor.
        assert orders(bench.receivers[0])
        bench.silent = set()
        bench.acceptor.set_limits(ConnectionLimits(total=1))
        successor = HandoffReceiver(bench.pairs[0][1])
        successor.hello(2)
        run_until(bench, lambda: orders(successor) is None and bench.acceptor.quotas.total == 2)
        run_until(bench, lambda: orders(bench.receivers[1]) == CloseOrder(bench.acceptor._next_token, 1, -1))


def test_descriptors_are_kept_back_for_the_protected_listener(caplog: pytest.LogCaptureFixture) -> None:
    """With every processor at its limit clients wait, and an administrator is accepted."""
    limits = ConnectionLimits(protected=ADMINS, descriptors=Descriptors(ordinary=2, protected=3))
    with accepting(limits) as bench:
        bench.connect(CLIENTS, count=6)
        run_until(bench, lambda: accepted(bench) == 5)
        assert bench.acceptor.quotas.by_listener[:2] == [4, 0]
        assert "limit of open files" in caplog.text
        bench.connect(ADMINS, count=3)
        run_until(bench, lambda: bench.acceptor.quotas.by_listener[:2] == [4, 2])
        end_one(bench)
        run_until(bench, lambda: bench.acceptor.quotas.by_listener[:2] == [3, 3])


def test_a07_waits_precede_rejections_and_delayed_rejections_immediate_ones() -> None:
    """A connection subject to every limit: rate, slot, rate of its address, number of its address."""
    everything = ConnectionLimits(
        total=0, per_address=0, address_rate=2, listeners=(ListenerLimits(rate=1), ListenerLimits())
    )
    with accepting(everything) as bench:
        bench.connect(count=12)
        run_until(bench, lambda: accepted(bench) == 1)
        assert is_open(bench.clients[0])
        # With a slot, and within the rate of its address, it exceeds the number of its address.
        bench.acceptor.set_limits(everything._replace(total=5))
        run_until(bench, lambda: accepted(bench) == 11)
        assert all(is_ended(client) for client in bench.clients[:10])
        assert bench.metric("connections_refused", CLIENTS) == 10
        # The eleventh is too fast for the listener, and within its rate after the wait.
        assert bench.metric("accept_throttled", CLIENTS) == 1
        assert is_open(bench.clients[10])
        bench.clock.advance_ms(1000)
        run_until(bench, lambda: accepted(bench) == 12)
        assert is_ended(bench.clients[10])
        # The twelfth waits as well; a rejection for the rate of its address would be delayed further.
        bench.acceptor.set_limits(everything._replace(total=5, address_rate=0))
        bench.clock.advance_ms(1000)
        run_until(bench, lambda: bench.metric("connections_parked") == 1)
        assert is_open(bench.clients[11])
        assert bench.metric("connections_refused", CLIENTS) == 11
