"""The acceptor with real sockets and real pairs; the other ends of the pairs are held by the test."""

import errno
import os
import socket
import struct
from collections.abc import Callable, Iterator

import pytest

from broker.ipc.process_context import BoundListener
from broker.network.acceptor.acceptor import Acceptor
from broker.network.acceptor.acceptor_metrics import AcceptorMeters
from broker.network.acceptor.connection_quotas import ConnectionLimits
from broker.network.acceptor.processor_link import ProcessorsInUse
from broker.network.handoff import QUEUE_SOCKETS, HandoffReceiver, HandoffSender, NewConnection
from shm.metrics import MetricsReader, MetricsSegment, MetricsWriter
from shm.process_slots import ACCEPTOR
from tests.support.deadline import wait_until
from tests.support.fakes import FakeClock

SECOND_NS = 1_000_000_000
BATCH = 16
NO_LIMITS = ConnectionLimits()


class Listening(socket.socket):
    """A real listening socket whose accept fails as often as the test wants."""

    def __init__(self) -> None:
        super().__init__(socket.AF_INET, socket.SOCK_STREAM)
        self.failures: list[int] = []
        self.bind(("127.0.0.1", 0))
        self.listen(200)
        self.setblocking(False)

    def accept(self) -> tuple[socket.socket, tuple[str, int]]:
        if self.failures:
            number = self.failures.pop(0)
            raise OSError(number, os.strerror(number))
        return super().accept()


def backlog(listening: socket.socket) -> int:
    """Return how many connections wait to be accepted: a client may be connected a moment before its own does."""
    info = listening.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 104)
    waiting: int = struct.unpack_from("I", info, 24)[0]
    return waiting


class Bench:
    """An acceptor with two listeners and two processors' ends."""

    def __init__(
        self,
        generation: int = 1,
        pairs: list[tuple[socket.socket, socket.socket]] | None = None,
        limits: ConnectionLimits = NO_LIMITS,
    ) -> None:
        self.clock = FakeClock()
        self.pairs = pairs or [socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET) for _ in range(2)]
        for end in (end for pair in self.pairs for end in pair):
            end.setblocking(False)
        self.sockets = [Listening(), Listening()]
        listeners = tuple(
            BoundListener(f"L{number}", "127.0.0.1", sock.getsockname()[1], sock, "127.0.0.1", 1)
            for number, sock in enumerate(self.sockets)
        )
        pages = MetricsSegment(memoryview(bytearray(MetricsSegment.bytes_needed(2, 1))), 2, 1)
        pages.initialise()
        page = pages.page(ACCEPTOR, 0)
        self.reader = MetricsReader(page)
        meters = AcceptorMeters(MetricsWriter(page), 2, self.clock.monotonic_ns)
        #: Processors whose loop stands still.
        self.silent: set[int] = set()
        senders = tuple(
            HandoffSender(pair[0], lambda n=number: n in self.silent) for number, pair in enumerate(self.pairs)
        )
        self.acceptor = Acceptor(listeners, senders, -1, generation, meters, self.clock, limits)
        self.receivers = [HandoffReceiver(pair[1]) for pair in self.pairs]
        self.wake, self._wake_writer = os.pipe()
        self.clients: list[socket.socket] = []
        self.taken: list[NewConnection] = []

    def connect(self, listener: int = 0, count: int = 1) -> None:
        listening = self.sockets[listener]
        wanted = backlog(listening) + count
        for _ in range(count):
            self.clients.append(socket.create_connection(listening.getsockname(), timeout=20))
        wait_until(lambda: backlog(listening) == wanted, "connections in the backlog")

    def take(self, processor: int, limit: int = 100) -> list[NewConnection]:
        new = self.receivers[processor].receive_some(limit)
        self.taken += new
        return new

    def metric(self, name: str, listener: int | None = None) -> int:
        return self.reader.read().values[name, "" if listener is None else str(listener)]

    def close(self) -> None:
        self.acceptor.close()
        for sock in (*self.clients, *(new.socket for new in self.taken), *(e for pair in self.pairs for e in pair)):
            sock.close()
        os.close(self.wake)
        os.close(self._wake_writer)


@pytest.fixture
def bench() -> Iterator[Bench]:
    made = Bench()
    made.acceptor.start(made.wake, take_stock=False)
    yield made
    made.close()


def run_until(bench: Bench, condition: Callable[[], bool], steps: int = 200) -> None:
    for _ in range(steps):
        if condition():
            return
        bench.acceptor.step()
    raise AssertionError(f"not after {steps} steps")


def test_connections_go_round_robin_with_their_options(bench: Bench) -> None:
    """`A06`, `A21`; `H12`: what a client has sent already is there for the processor."""
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


def test_a_processor_that_stands_still_gets_no_connection(bench: Bench) -> None:
    """They wait for it only when none is left that turns."""
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


def test_a_closed_connection_is_uncounted_once(bench: Bench) -> None:
    """`A33`."""
    bench.connect(listener=1)
    run_until(bench, lambda: bench.acceptor.quotas.total == 1)
    (new,) = bench.take(0)
    assert bench.acceptor.quotas.by_listener == [0, 1]
    for _ in range(2):
        bench.receivers[0].report_closed(new.serial)
        bench.receivers[0].flush()
    run_until(bench, lambda: bench.acceptor.quotas.total == 0)
    assert bench.metric("connections_closed", 1) == 1


def test_full_queues_block_their_listener_and_no_connection_is_lost(bench: Bench) -> None:
    """`A22`, `A23`, `A32`: twenty to each processor, then one is held and the rest stay in the backlog."""
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


def test_a_full_processor_is_passed_over(bench: Bench) -> None:
    """`A21`: each is tried once."""
    bench.connect(count=2 * QUEUE_SOCKETS)
    run_until(bench, lambda: bench.acceptor.quotas.total == 2 * QUEUE_SOCKETS)
    bench.take(1)
    bench.connect(count=5)
    run_until(bench, lambda: bench.acceptor.quotas.total == 2 * QUEUE_SOCKETS + 5)
    assert len(bench.take(1)) == 5


@pytest.mark.parametrize("number", [errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM])
def test_without_descriptors_the_listener_rests_and_comes_back(bench: Bench, number: int) -> None:
    """`A24`: 100 ms doubling to 1 s."""
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


def test_a_resting_listener_does_not_hold_up_the_other(bench: Bench) -> None:
    """`A24`, `A32`."""
    bench.sockets[0].failures += [errno.EMFILE]
    bench.connect(listener=0)
    run_until(bench, lambda: bench.metric("accept_errors") == 1)
    bench.connect(listener=1, count=3)
    run_until(bench, lambda: bench.acceptor.quotas.by_listener == [0, 3])


def test_a05_a_busy_listener_leaves_each_turn_to_the_others(bench: Bench) -> None:
    """One listener's backlog is taken a batch at a time."""
    bench.connect(listener=0, count=BATCH + 9)
    bench.connect(listener=1)
    bench.acceptor.step()
    assert bench.acceptor.quotas.by_listener == [BATCH, 1]
    bench.acceptor.step()
    assert bench.acceptor.quotas.by_listener == [BATCH + 9, 1]


@pytest.mark.parametrize("number", [errno.EPROTO, errno.EPERM, errno.ECONNABORTED, errno.ENETDOWN])
def test_a05_a_failure_to_accept_is_logged_and_the_loop_goes_on_at_once(
    bench: Bench, caplog: pytest.LogCaptureFixture, number: int
) -> None:
    """Only exhaustion is a reason to rest; the log has one line for a run of failures."""
    bench.sockets[0].failures += [number] * 3
    bench.connect(listener=0)
    for _ in range(4):
        bench.acceptor.step()
    assert bench.acceptor.quotas.total == 1
    assert bench.metric("accept_errors") == 3
    (record,) = caplog.records
    assert record.getMessage() == f"accept failed: [Errno {number}] {os.strerror(number)}"


def test_a31_the_stop_flag_ends_the_sleep(bench: Bench) -> None:
    """Its descriptor is polled with the listeners: a stop waits for no connection and no tick."""
    os.write(bench._wake_writer, b"!")
    assert bench.acceptor._poll(3600 * SECOND_NS) == [bench.wake]


def test_a31_closing_does_not_wait_for_room_and_drops_what_is_held(bench: Bench) -> None:
    """With every queue full one connection is held and others are in the backlog: all of them see the end."""
    bench.connect(count=2 * QUEUE_SOCKETS + 3)
    run_until(bench, lambda: bench.metric("connections_accepted", 0) == 2 * QUEUE_SOCKETS + 1)
    held, *backlog = bench.clients[2 * QUEUE_SOCKETS :]
    bench.acceptor.close()
    for client in (held, *backlog):
        assert is_ended(client)
    assert all(listening.fileno() == -1 for listening in bench.sockets)
    assert len(bench.take(0)) == len(bench.take(1)) == QUEUE_SOCKETS


def is_ended(client: socket.socket) -> bool:
    try:
        return client.recv(1) == b""
    except ConnectionResetError:
        return True


def test_an_aborted_connection_is_counted_and_costs_nothing_else(bench: Bench) -> None:
    """`A25`."""
    bench.sockets[0].failures += [errno.ECONNABORTED]
    bench.connect()
    run_until(bench, lambda: bench.acceptor.quotas.total == 1)
    assert bench.metric("accept_errors") == 1


def test_a_replaced_processor_leaves_only_what_it_adopted(bench: Bench) -> None:
    """`A33`: a dead processor's connections are subtracted as a set; those still queued live on."""
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


def test_a_replaced_acceptor_learns_what_is_open(bench: Bench) -> None:
    """`A33`: the processors tell; serials of the two acceptors never meet."""
    bench.connect(listener=1, count=5)
    run_until(bench, lambda: bench.acceptor.quotas.total == 5)
    bench.take(0)
    closed = bench.take(1)[0]
    bench.receivers[1].report_closed(closed.serial)
    successor = Bench(generation=2, pairs=bench.pairs)
    successor.receivers = bench.receivers
    successor.acceptor.start(successor.wake, take_stock=True)
    successor.connect()
    bench.take(0)
    bench.take(1)
    run_until(successor, lambda: successor.acceptor.quotas.total == 5)
    assert successor.acceptor.quotas.by_listener == [1, 4]
    serials = {new.serial for new in bench.taken}
    new = [*successor.take(0), *successor.take(1)]
    assert len(new) == 1
    assert new[0].serial not in serials
    successor.close()


def test_a_replaced_acceptor_waits_a_second_for_a_processor_that_is_silent(bench: Bench) -> None:
    bench.connect()
    successor = Bench(generation=2, pairs=bench.pairs)
    successor.acceptor.start(successor.wake, take_stock=True)
    successor.connect()
    successor.clock.advance_ms(999)
    successor.acceptor.step()
    assert successor.metric("connections_accepted", 0) == 0
    successor.clock.advance_ms(1)
    run_until(successor, lambda: successor.acceptor.quotas.total == 1)
    successor.close()


def test_a08_beyond_max_connections_others_wait_until_one_ends(caplog: pytest.LogCaptureFixture) -> None:
    """Nobody is refused: the listener is not polled, with one connection held."""
    bench = Bench(limits=ConnectionLimits(total=3))
    try:
        bench.acceptor.start(bench.wake, take_stock=False)
        bench.connect(count=5)
        run_until(bench, lambda: bench.metric("connections_accepted", 0) == 4)
        assert bench.acceptor.quotas.total == 3
        assert "max.connections" in caplog.text
        new = (bench.take(0) + bench.take(1))[0]
        receiver = bench.receivers[0 if new.serial in bench.acceptor.quotas.serials(0) else 1]
        receiver.report_closed(new.serial)
        receiver.flush()
        run_until(bench, lambda: bench.metric("connections_accepted", 0) == 5)
        assert bench.acceptor.quotas.total == 3
        assert bench.metric("connections_refused", 0) == 0
    finally:
        bench.close()


def test_a14_what_an_address_has_too_many_of_is_closed(caplog: pytest.LogCaptureFixture) -> None:
    bench = Bench(limits=ConnectionLimits(per_address=2, overrides={"127.0.0.9": 1}))
    try:
        bench.acceptor.start(bench.wake, take_stock=False)
        bench.connect(count=5)
        run_until(bench, lambda: bench.metric("connections_refused", 0) == 3)
        assert bench.acceptor.quotas.by_address == {"127.0.0.1": 2}
        assert bench.metric("connections_accepted", 0) - bench.metric("connections_closed", 0) == 2
        lines = [record.getMessage() for record in caplog.records if "max.connections.per.ip" in record.getMessage()]
        assert len(lines) == 1
    finally:
        bench.close()


def test_a28_a_processor_that_goes_gets_nothing_more_and_is_uncounted_when_it_has_gone(bench: Bench) -> None:
    """`A29`: also what it had not taken. The number is confirmed once, behind the last connection for it."""
    count, gone, confirmed = [2], set[int](), list[int]()
    successor = Bench(generation=2, pairs=bench.pairs)
    in_use = ProcessorsInUse(lambda: count[0], gone.__contains__, confirmed.append)
    successor.acceptor.start(successor.wake, take_stock=False, in_use=in_use)
    successor.connect(count=6)
    run_until(successor, lambda: successor.acceptor.quotas.total == 6)
    assert (len(successor.take(0)), len(successor.take(1, limit=1))) == (3, 1)
    count[0] = 1
    successor.connect(count=4)
    run_until(successor, lambda: successor.acceptor.quotas.total == 10)
    # In the turn in which it learns of it connections may still go to both.
    late = len(successor.take(1)) - 2
    assert confirmed == [2, 1]
    successor.connect(count=2)
    run_until(successor, lambda: successor.acceptor.quotas.total == 12)
    assert not successor.take(1)
    gone.add(1)
    run_until(successor, lambda: successor.acceptor.quotas.total == 9 - late)
    count[0] = 2
    gone.clear()
    os.write(successor._wake_writer, b"!")
    successor.acceptor.step()
    successor.connect(count=2)
    run_until(successor, lambda: successor.acceptor.quotas.total == 11 - late)
    assert len(successor.take(1)) == 1
    assert confirmed == [2, 1, 2]
    successor.close()
