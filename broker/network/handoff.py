"""The hand-off: messages between acceptor and processors over their SOCK_SEQPACKET pair (`A22`, `A33`).

Down go accepted sockets, each with a serial that the acceptor gave it. Up come, by serial: *taken* (room
for one more in the queue of twenty), *closed* (uncount it), *lost* (the descriptor could not be received).
Down goes also the order to close connections until so many are left (`A17`), and up, when that is done and all of its
closes are reported, *obeyed*. Neither side ever waits.

Either side may be replaced by a new process while the pair and what is queued in it live on. The pair keeps
order, so one question settles what is still open: the acceptor sends a *reconciliation*; all it sent before has
been read by the time the processor reads the reconciliation, and what the processor then lists is the truth about
all of that. A processor sends *hello* when it starts, which makes the acceptor ask; a new acceptor asks
everyone.

Both ends are plain objects without a loop: the processor holds a `HandoffReceiver`, the acceptor one
`HandoffSender` per processor.
"""

from __future__ import annotations

import errno
import socket
import struct
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple, TypeVar

from rotunda.broker.network.fd_passing import send_fd, try_receive
from rotunda.shm.tables.client_hosts import host_text, packed_host

#: Connections handed over and not yet taken, per processor (`A22`).
QUEUE_SOCKETS = 20

# Down: kind, listener, port, family, serial or reconciliation token, packed address.
_DOWN = struct.Struct("=hhHhq16s")
_CONNECTION, _ASK_CENSUS, _CLOSE_EXCESS = 1, 2, 3
# Of an order, in place of the address: how many connections are to be left.
_LEFT = struct.Struct("=q8x")
# Up: kind, last (of a reconciliation), count, token or generation; then the entries.
_UP = struct.Struct("=hhiq")
_TAKEN, _CLOSED, _LOST, _HELLO, _CENSUS, _OBEYED = 1, 2, 3, 4, 5, 6
_SERIAL = struct.Struct("=q")
_RECONCILIATION_ENTRY = struct.Struct("=qhh16s")
_MOST_ENTRIES = 128

_Item = TypeVar("_Item")

_UP_BYTES = _UP.size + _MOST_ENTRIES * _RECONCILIATION_ENTRY.size


class NewConnection(NamedTuple):
    """A client's socket (non-blocking) as a processor gets it, to be reported as closed by its `serial`."""

    socket: socket.socket
    serial: int
    listener: int
    peer_host: str
    peer_port: int


class OpenConnection(NamedTuple):
    """A line of a reconciliation."""

    serial: int
    listener: int
    peer_host: str


class CloseOrder(NamedTuple):
    """Close connections until ``left`` are left, those of the listener ``protected`` apart (-1: there is none)."""

    token: int
    left: int
    protected: int


class SocketsTaken(NamedTuple):
    """The processor has these sockets."""

    serials: tuple[int, ...]


class Closed(NamedTuple):
    """These connections are gone; `lost` if they never arrived."""

    serials: tuple[int, ...]
    lost: bool


class Hello(NamedTuple):
    """A processor has started."""

    generation: int


class Reconciliation(NamedTuple):
    """All that is open of what was handed over before the question numbered `token`."""

    token: int
    connections: tuple[OpenConnection, ...]


class Obeyed(NamedTuple):
    """The order numbered `token` has been carried out, and every close is reported."""

    token: int


Report = SocketsTaken | Closed | Hello | Reconciliation | Obeyed


class _Outbox:
    """Messages that wait for room in the pair; order is kept."""

    def __init__(self, pair_end: socket.socket) -> None:
        self._pair_end = pair_end
        self._waiting: deque[bytes] = deque()

    def __len__(self) -> int:
        return len(self._waiting)

    def put(self, message: bytes) -> None:
        self._waiting.append(message)

    def flush(self) -> bool:
        """Send what fits; return whether all is sent."""
        waiting, send = self._waiting, self._pair_end.send
        while waiting:
            try:
                send(waiting[0], socket.MSG_DONTWAIT | socket.MSG_NOSIGNAL)
            except BlockingIOError:
                return False
            except OSError as failure:
                if failure.errno not in {errno.EPIPE, errno.ECONNRESET, errno.ENOBUFS}:
                    raise
                return False
            waiting.popleft()
        return True


class HandoffReceiver:
    """The processor's end. Remembers what a reconciliation asks of every open connection.

    Call `receive_some` when the pair is readable and `flush` once a loop; poll for writing while
    `wants_write`.
    """

    def __init__(self, pair_end: socket.socket) -> None:
        self._pair_end = pair_end
        self._outbox = _Outbox(pair_end)
        self._open: dict[int, tuple[int, bytes]] = {}
        #: The order that was received last and is not carried out.
        self.order: CloseOrder | None = None
        self._taken: list[int] = []
        self._closed: list[int] = []
        self._lost: list[int] = []

    def fileno(self) -> int:
        """Return the descriptor to poll."""
        return self._pair_end.fileno()

    @property
    def wants_write(self) -> bool:
        """Whether reports wait for room in the pair."""
        return bool(self._outbox)

    def hello(self, generation: int) -> None:
        """Say that this processor has started. Before anything else is received."""
        self._outbox.put(_UP.pack(_HELLO, 1, 0, generation))
        self.flush()

    def receive_some(self, limit: int = QUEUE_SOCKETS) -> list[NewConnection]:
        """Return at most `limit` new connections; none when there are none. Takes are reported at once.

        What stands behind an order is not received before that is carried out.
        """
        connections: list[NewConnection] = []
        while len(connections) < limit and self.order is None:
            received = try_receive(self._pair_end, _DOWN.size)
            if received is None or not received.payload:
                break
            kind, listener, port, family, number, address = _DOWN.unpack(received.payload)
            if kind == _CLOSE_EXCESS:
                self.order = CloseOrder(number, _LEFT.unpack(address)[0], listener)
            elif kind == _ASK_CENSUS:
                self._answer_reconciliation(number)
            elif received.fd < 0:
                self._lost.append(number)
            else:
                client = socket.socket(family, socket.SOCK_STREAM, 0, fileno=received.fd)
                client.setblocking(False)
                self._open[number] = (listener, address)
                self._taken.append(number)
                connections.append(NewConnection(client, number, listener, host_text(address), port))
        self.flush()
        return connections

    def report_closed(self, serial: int) -> None:
        """Report that a connection is gone. Goes out with the next `flush`; a serial reported twice counts once."""
        if self._open.pop(serial, None) is not None:
            self._closed.append(serial)

    def obeyed(self) -> None:
        """Report that the order is carried out, behind the closes that it has brought."""
        if self.order is not None:
            self._pack_reports()
            self._outbox.put(_UP.pack(_OBEYED, 1, 0, self.order.token))
            self.order = None
            self.flush()

    def flush(self) -> None:
        """Send what is to be reported, as far as there is room; what waits grows few messages, not many."""
        if self._outbox.flush():
            self._pack_reports()
            self._outbox.flush()

    def _pack_reports(self) -> None:
        for kind, serials in ((_TAKEN, self._taken), (_CLOSED, self._closed), (_LOST, self._lost)):
            for chunk in _chunks(serials):
                packed = b"".join(map(_SERIAL.pack, chunk))
                self._outbox.put(_UP.pack(kind, 1, len(chunk), 0) + packed)
            serials.clear()

    def _answer_reconciliation(self, token: int) -> None:
        # What is noted but unsent belongs before the reconciliation: afterwards it would speak of settled serials.
        self._pack_reports()
        entries = [_RECONCILIATION_ENTRY.pack(serial, where, 0, host) for serial, (where, host) in self._open.items()]
        chunks = list(_chunks(entries)) or [[]]
        for number, chunk in enumerate(chunks, 1):
            self._outbox.put(_UP.pack(_CENSUS, number == len(chunks), len(chunk), token) + b"".join(chunk))


class HandoffSender:
    """The acceptor's end of one pair. Counts nothing: what its reports mean is the acceptor's business.

    `is_silent` is whether the loop of the processor at the other end stands still.
    """

    def __init__(self, pair_end: socket.socket, is_silent: Callable[[], bool] = lambda: False) -> None:
        self.is_silent = is_silent
        self._pair_end = pair_end
        self._outbox = _Outbox(pair_end)
        self._reconciliation: list[OpenConnection] = []

    def fileno(self) -> int:
        """Return the descriptor to poll."""
        return self._pair_end.fileno()

    @property
    def wants_write(self) -> bool:
        """Whether a question or an order waits for room in the pair."""
        return bool(self._outbox)

    def try_send(self, client: socket.socket, serial: int, listener: int, peer: tuple[str, int]) -> bool:
        """Hand over a connection; False when the pair has no room. The caller closes its copy afterwards."""
        if not self.flush():
            return False
        host, port = peer
        message = _DOWN.pack(_CONNECTION, listener, port, client.family, serial, packed_host(host))
        return send_fd(self._pair_end, message, client.fileno())

    def ask_reconciliation(self, token: int) -> None:
        """Ask which connections are open; goes out before anything that is handed over later."""
        self._outbox.put(_DOWN.pack(_ASK_CENSUS, 0, 0, 0, token, bytes(16)))
        self.flush()

    def order_excess(self, order: CloseOrder) -> None:
        """Order to close connections; goes out before anything that is handed over later."""
        self._outbox.put(_DOWN.pack(_CLOSE_EXCESS, order.protected, 0, 0, order.token, _LEFT.pack(order.left)))
        self.flush()

    def flush(self) -> bool:
        """Send waiting questions and orders; return whether all are sent."""
        return self._outbox.flush()

    def reports(self) -> Iterator[Report]:
        """Yield what the processor has reported since the last call, in order."""
        while (received := try_receive(self._pair_end, _UP_BYTES)) is not None and received.payload:
            kind, last, count, number = _UP.unpack_from(received.payload)
            if kind == _HELLO:
                # What a predecessor left half sent is void.
                self._reconciliation.clear()
                yield Hello(number)
            elif kind == _OBEYED:
                yield Obeyed(number)
            elif kind == _CENSUS:
                entries = _RECONCILIATION_ENTRY.iter_unpack(received.payload[_UP.size :])
                self._reconciliation += [
                    OpenConnection(serial, where, host_text(host)) for serial, where, _, host in entries
                ]
                if last:
                    yield Reconciliation(number, tuple(self._reconciliation))
                    self._reconciliation.clear()
            else:
                serials = struct.unpack_from(f"={count}q", received.payload, _UP.size)
                yield SocketsTaken(serials) if kind == _TAKEN else Closed(serials, lost=kind == _LOST)


def _chunks(items: Sequence[_Item]) -> Iterator[Sequence[_Item]]:
    for start in range(0, len(items), _MOST_ENTRIES):
        yield items[start : start + _MOST_ENTRIES]
