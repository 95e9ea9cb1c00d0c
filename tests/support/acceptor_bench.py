"""The acceptor with real sockets and real pairs; the other ends of the pairs are held by the test."""

import os
import socket
import struct
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rotunda.broker.ipc.process_context import BoundListener
from rotunda.broker.network.acceptor.acceptor import Acceptor
from rotunda.broker.network.acceptor.acceptor_metrics import AcceptorMeters
from rotunda.broker.network.acceptor.connection_limits import ConnectionLimits
from rotunda.broker.network.handoff import HandoffReceiver, HandoffSender, NewConnection
from rotunda.shm.metrics.process_metrics import MetricsReader, MetricsSegment, MetricsWriter
from rotunda.shm.tables.process_slots import ACCEPTOR
from tests.support.deadline import deadline_s, wait_until
from tests.support.fakes import FakeClock

NO_LIMITS = ConnectionLimits()


class Listening(socket.socket):
    """A real listening socket whose accept fails as often as the test sets."""

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


class AcceptorBench:
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
            BoundListener(f"L{number}", "127.0.0.1", sock.getsockname()[1], sock, "127.0.0.1", 1, "PLAINTEXT", number)
            for number, sock in enumerate(self.sockets)
        )
        pages = MetricsSegment(memoryview(bytearray(MetricsSegment.bytes_needed(2, 1))), 2, 1)
        pages.initialise()
        page = pages.page(ACCEPTOR, 0)
        self.reader = MetricsReader(page)
        meters = AcceptorMeters(MetricsWriter(page), 2, self.clock.monotonic_ns)
        #: Processors whose loop does not run.
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
            self.clients.append(socket.create_connection(listening.getsockname(), timeout=deadline_s()))
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


@contextmanager
def accepting(limits: ConnectionLimits) -> Iterator[AcceptorBench]:
    """Yield an acceptor with limits."""
    made = AcceptorBench(limits=limits)
    try:
        made.acceptor.start(made.wake, wait_for_census=False)
        yield made
    finally:
        made.close()


def run_until(bench: AcceptorBench, condition: Callable[[], bool], steps: int = 200) -> None:
    """Turn the acceptor's loop until the condition holds."""
    for _ in range(steps):
        if condition():
            return
        bench.acceptor.step()
    raise AssertionError(f"not after {steps} steps")


def is_ended(client: socket.socket) -> bool:
    """Return whether the other side has ended a connection; waits until it has, or sent something."""
    try:
        return client.recv(1) == b""
    except ConnectionResetError:
        return True
