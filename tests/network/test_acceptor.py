"""The acceptor with real sockets and real pairs; the test holds the other ends of the pairs."""

import errno
import os
import socket
from collections.abc import Iterator

import pytest

from rotunda.broker.network.acceptor.processor_link import ProcessorsInUse
from rotunda.broker.network.handoff import QUEUE_SOCKETS, HandoffReceiver, HandoffSender
from tests.support.acceptor_bench import AcceptorBench, is_ended, run_until

SECOND_NS = 1_000_000_000
BATCH = 16


@pytest.fixture
def bench() -> Iterator[AcceptorBench]:
    made = AcceptorBench()
    made.acceptor.start(made.wake, wait_for_census=False)
    yield made
    made.close()


def test_connections_are_handed_over_round_robin_with_their_options(bench: AcceptorBench) -> None:
    """`A06`, `A21`; `H12`: bytes already sent by a client are available to the processor."""
    bench.connect(count=4)
    for client in bench.clients:
        client.sendall(b"early")
    run_until(bench, lambda: bench.acceptor.quotas.total == 4)
    first, second = bench.take(0), bench.take(1)
    assert [len(first), len(second)] == [2, 2]
    for new in (*first, *second):
        assert new.socket.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)
        assert new.socket.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE)
        assert not os.get_blocking(new.socket.fileno())
        assert new.listener == 0
        assert new.peer_host == "127.0.0.1"
        assert new.socket.recv(100) == b"early"
    assert {new.peer_port for new in (*first, *second)} == {c.getsockname()[1] for c in bench.clients}
    assert bench.metric("connections_accepted", 0) == 4


def test_a_processor_that_is_blocked_gets_no_connection(bench: AcceptorBench) -> None:
    """New connections wait while no processor is running."""
    bench.silent = {0}
    bench.connect(count=4)
    run_until(bench, lambda: bench.acceptor.quotas.total == 4)
    assert [len(bench.take(0)), len(bench.take(1))] == [0, 4]
    bench.silent = {0, 1}
    bench.connect()
    for _ in range(3):
        bench.acceptor.step()
    assert bench.acceptor.quotas.total == 4
    bench.silent = set()
    run_until(bench, lambda: bench.acceptor.quotas.total == 5)


def test_a_closed_connection_is_uncounted_once(bench: AcceptorBench) -> None:
    """`A33`."""
    bench.connect(listener=1)
    run_until(bench, lambda: bench.acceptor.quotas.total == 1)
    (new,) = bench.take(0)
    assert bench.acceptor.quotas.by_listener[:2] == [0, 1]
    for _ in range(2):
        bench.receivers[0].report_closed(new.serial)
        bench.receivers[0].flush()
    run_until(bench, lambda: bench.acceptor.quotas.total == 0)
    assert bench.metric("connections_closed", 1) == 1


def test_full_queues_block_their_listener_and_no_connection_is_lost(bench: AcceptorBench) -> None:
    """`A22`, `A23`, `A32`: twenty per processor, then one is held and the rest remain in the backlog."""
    wanted = 2 * QUEUE_SOCKETS + 5
    bench.connect(count=wanted)
    run_until(bench, lambda: bench.metric("connections_accepted", 0) == 2 * QUEUE_SOCKETS + 1)
    assert bench.acceptor.quotas.total == 2 * QUEUE_SOCKETS
    bench.clock.advance_ns(3 * SECOND_NS)
    bench.take(1, limit=1)
    run_until(bench, lambda: bench.metric("blocked_ns", 0) >= 3 * SECOND_NS)
    while len(bench.taken) < wanted:
        bench.take(0)
        bench.take(1)
        bench.acceptor.step()
    assert len({new.serial for new in bench.taken}) == wanted
    blocked_ns = bench.metric("blocked_ns", 0)
    bench.clock.advance_ns(SECOND_NS)
    bench.connect()
    run_until(bench, lambda: bench.acceptor.quotas.total == wanted + 1)
    assert bench.metric("blocked_ns", 0) == blocked_ns
    assert bench.metric("blocked_ns", 1) == 0


def test_a_full_processor_is_passed_over(bench: AcceptorBench) -> None:
    """`A21`: each is tried once."""
    bench.connect(count=2 * QUEUE_SOCKETS)
    run_until(bench, lambda: bench.acceptor.quotas.total == 2 * QUEUE_SOCKETS)
    bench.take(1)
    bench.connect(count=5)
    run_until(bench, lambda: bench.acceptor.quotas.total == 2 * QUEUE_SOCKETS + 5)
    assert len(bench.take(1)) == 5


@pytest.mark.parametrize("number", [errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM])
def test_without_descriptors_the_listener_rests_and_returns(
    bench: AcceptorBench, caplog: pytest.LogCaptureFixture, number: int
) -> None:
    """`A24`: 100 ms doubling to 1 s, and one line of the log."""
    bench.sockets[0].failures += [number] * 6
    bench.connect(listener=0)
    run_until(bench, lambda: bench.metric("accept_errors") == 1)
    for failures, wait_ms in enumerate((100, 200, 400, 800, 1000, 1000), 1):
        bench.clock.advance_ms(wait_ms - 1)
        bench.acceptor.step()
        assert bench.metric("accept_errors") == failures
        bench.clock.advance_ms(1)
        bench.acceptor.step()
        bench.acceptor.step()
    assert bench.acceptor.quotas.total == 1
    assert bench.metric("accept_errors") == 6
    assert len(caplog.records) == 1


def test_a_resting_listener_does_not_hold_up_the_other(bench: AcceptorBench) -> None:
    """`A24`, `A32`."""
    bench.sockets[0].failures += [errno.EMFILE]
    bench.connect(listener=0)
    run_until(bench, lambda: bench.metric("accept_errors") == 1)
    bench.connect(listener=1, count=3)
    run_until(bench, lambda: bench.acceptor.quotas.by_listener[:2] == [0, 3])
    assert bench.metric("accept_errors") == 1


def test_a05_a_busy_listener_does_not_delay_the_others(bench: AcceptorBench) -> None:
    """One listener's backlog is accepted in batches."""
    bench.connect(listener=0, count=BATCH + 9)
    bench.connect(listener=1)
    bench.acceptor.step()
    assert bench.acceptor.quotas.by_listener[:2] == [BATCH, 1]
    bench.acceptor.step()
    assert bench.acceptor.quotas.by_listener[:2] == [BATCH + 9, 1]


@pytest.mark.parametrize("number", [errno.EPROTO, errno.EPERM, errno.ECONNABORTED, errno.ENETDOWN])
def test_a05_a_failure_to_accept_is_logged_and_the_loop_continues_at_once(
    bench: AcceptorBench, caplog: pytest.LogCaptureFixture, number: int
) -> None:
    """Only exhaustion pauses the listener; the log has one line for a run of failures."""
    bench.sockets[0].failures += [number] * 3
    bench.connect(listener=0)
    for _ in range(4):
        bench.acceptor.step()
    assert bench.acceptor.quotas.total == 1
    assert bench.metric("accept_errors") == 3
    (record,) = caplog.records
    assert record.getMessage() == f"accept failed: [Errno {number}] {os.strerror(number)}"


def test_a31_the_stop_flag_ends_the_sleep(bench: AcceptorBench) -> None:
    """Its descriptor is polled with the listeners: a stop does not wait for a connection or a tick."""
    os.write(bench._wake_writer, b"!")
    assert bench.acceptor._poll(3600 * SECOND_NS) == [bench.wake]


def test_a31_closing_does_not_wait_for_room_and_drops_held_connections(bench: AcceptorBench) -> None:
    """With every queue full, one connection is held and others are in the backlog: all of them are closed."""
    bench.connect(count=2 * QUEUE_SOCKETS + 3)
    run_until(bench, lambda: bench.metric("connections_accepted", 0) == 2 * QUEUE_SOCKETS + 1)
    held, *backlog = bench.clients[2 * QUEUE_SOCKETS :]
    bench.acceptor.close()
    for client in (held, *backlog):
        assert is_ended(client)
    assert all(listening.fileno() == -1 for listening in bench.sockets)
    assert len(bench.take(0)) == len(bench.take(1)) == QUEUE_SOCKETS


@pytest.mark.parametrize(("owner", "step"), [(socket.socket, "setsockopt"), (HandoffSender, "try_send")])
def test_a25_a_socket_is_closed_that_cannot_be_configured_or_handed_over(
    bench: AcceptorBench, monkeypatch: pytest.MonkeyPatch, owner: type, step: str
) -> None:
    def fail(*_: object) -> None:
        raise OSError(errno.EINVAL, "fails for a test")

    bench.connect(count=2)
    with monkeypatch.context() as broken:
        broken.setattr(owner, step, fail)
        run_until(bench, lambda: bench.metric("accept_errors") == 2)
    assert all(map(is_ended, bench.clients))
    bench.connect()
    run_until(bench, lambda: bench.acceptor.quotas.total == 1)


def test_only_adopted_connections_of_a_replaced_processor_remain(bench: AcceptorBench) -> None:
    """`A33`: a dead processor's connections are subtracted as a set; those still queued survive."""
    bench.connect(count=6)
    run_until(bench, lambda: bench.acceptor.quotas.total == 6)
    dead_had = bench.take(0, limit=2)
    bench.receivers[0] = HandoffReceiver(bench.pairs[0][1])
    bench.receivers[0].hello(2)
    run_until(bench, lambda: bench.acceptor.quotas.total == 6)
    bench.acceptor.step()
    adopted = bench.take(0)
    assert len(adopted) == 1
    run_until(bench, lambda: bench.acceptor.quotas.total == 4)
    assert bench.acceptor.quotas.serials(0) == {new.serial for new in adopted}
    assert not {new.serial for new in dead_had} & bench.acceptor.quotas.serials(0)


def test_a_replaced_acceptor_gets_the_open_connections(bench: AcceptorBench) -> None:
    """`A33`: the processors report them; serials of the two acceptors never collide."""
    bench.connect(listener=1, count=5)
    run_until(bench, lambda: bench.acceptor.quotas.total == 5)
    bench.take(0)
    closed = bench.take(1)[0]
    bench.receivers[1].report_closed(closed.serial)
    successor = AcceptorBench(generation=2, pairs=bench.pairs)
    successor.receivers = bench.receivers
    successor.acceptor.start(successor.wake, wait_for_census=True)
    successor.connect()
    bench.take(0)
    bench.take(1)
    run_until(successor, lambda: successor.acceptor.quotas.total == 5)
    assert successor.acceptor.quotas.by_listener[:2] == [1, 4]
    serials = {new.serial for new in bench.taken}
    new = [*successor.take(0), *successor.take(1)]
    assert len(new) == 1
    assert new[0].serial not in serials
    successor.close()


def test_a_replaced_acceptor_waits_a_second_for_a_processor_that_is_silent(bench: AcceptorBench) -> None:
    bench.connect()
    successor = AcceptorBench(generation=2, pairs=bench.pairs)
    successor.acceptor.start(successor.wake, wait_for_census=True)
    successor.connect()
    successor.clock.advance_ms(999)
    successor.acceptor.step()
    assert successor.metric("connections_accepted", 0) == 0
    successor.clock.advance_ms(1)
    run_until(successor, lambda: successor.acceptor.quotas.total == 1)
    successor.close()


def test_a28_a_leaving_processor_gets_no_connection_and_is_uncounted_at_its_end(bench: AcceptorBench) -> None:
    """`A29`: including its queued connections. The new number is confirmed once, after the last connection for it."""
    count, ended, confirmed = [2], set[int](), list[int]()
    successor = AcceptorBench(generation=2, pairs=bench.pairs)
    in_use = ProcessorsInUse(lambda: count[0], ended.__contains__, confirmed.append)
    successor.acceptor.start(successor.wake, wait_for_census=False, in_use=in_use)
    successor.connect(count=6)
    run_until(successor, lambda: successor.acceptor.quotas.total == 6)
    assert (len(successor.take(0)), len(successor.take(1, limit=1))) == (3, 1)
    count[0] = 1
    successor.connect(count=4)
    run_until(successor, lambda: successor.acceptor.quotas.total == 10)
    # In the turn that reads the new number, both may still receive connections.
    late = len(successor.take(1)) - 2
    assert confirmed == [2, 1]
    successor.connect(count=2)
    run_until(successor, lambda: successor.acceptor.quotas.total == 12)
    assert not successor.take(1)
    ended.add(1)
    run_until(successor, lambda: successor.acceptor.quotas.total == 9 - late)
    count[0] = 2
    ended.clear()
    os.write(successor._wake_writer, b"!")
    successor.acceptor.step()
    successor.connect(count=2)
    run_until(successor, lambda: successor.acceptor.quotas.total == 11 - late)
    assert len(successor.take(1)) == 1
    assert confirmed == [2, 1, 2]
    successor.close()
