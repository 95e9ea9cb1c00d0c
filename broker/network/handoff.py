"""Messages between the acceptor and the processors over their SOCK_SEQPACKET pairs (`A22`, `A33`).

The acceptor sends accepted sockets, each with a serial number. The processor reports by serial: *taken* (room for one
more in the queue of twenty), *closed* (decrement the counts), *lost* (the descriptor could not be received). The
acceptor also sends orders to close connections down to a given number (`A17`); the processor reports *obeyed* after the
order is carried out and all of its closes are reported. Neither side ever blocks.

Either side may be replaced by a new process while the pair and its queued messages survive. The pair preserves order,
so one request settles every open serial: the acceptor sends a *reconciliation*; the processor reads it after all
earlier messages, and its list of open connections is then complete for all of these. A processor sends *hello* when it
starts, and the acceptor reconciles it; a new acceptor reconciles every processor.

Both ends are plain objects without a loop: the processor has a `HandoffReceiver`, the acceptor one `HandoffSender` per
processor.
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

#: Connections sent to a processor and not yet received by it, at most, per processor (`A22`).
QUEUE_SOCKETS = 20

# To the processor: kind, listener, port, family, serial or reconciliation token, packed address.
_DOWN = struct.Struct("=hhHhq16s")
_CONNECTION, _ASK_CENSUS, _CLOSE_EXCESS = 1, 2, 3
# In a close order, in the field of the address: the number of connections to keep open.
_LEFT = struct.Struct("=q8x")
# To the acceptor: kind, last (of a reconciliation), count, token or generation; then the entries.
_UP = struct.Struct("=hhiq")
_CONFIRMED, _CLOSED, _LOST, _HELLO, _CENSUS, _OBEYED = 1, 2, 3, 4, 5, 6
_SERIAL = struct.Struct("=q")
_RECONCILIATION_ENTRY = struct.Struct("=qhh16s")
_MOST_ENTRIES = 128

_Item = TypeVar("_Item")

_UP_BYTES = _UP.size + _MOST_ENTRIES * _RECONCILIATION_ENTRY.size


class NewConnection(NamedTuple):
    """A client's non-blocking socket as a processor receives it; its close is reported by `serial`."""

    socket: socket.socket
    serial: int
    listener: int
    peer_host: str
    peer_port: int


class OpenConnection(NamedTuple):
    """One entry of a reconciliation."""

    serial: int
    listener: int
    peer_host: str


class CloseOrder(NamedTuple):
    """Order to close connections until ``left`` remain; those of listener ``protected`` (-1: none) are not counted."""

    token: int
    left: int
    protected: int


class SocketsTaken(NamedTuple):
    """Report: the processor has received these sockets."""

    serials: tuple[int, ...]


class Closed(NamedTuple):
    """Report: these connections are closed; `lost` if the processor never received them."""

    serials: tuple[int, ...]
    lost: bool


class Hello(NamedTuple):
    """Report: a processor has started."""

    generation: int


class Reconciliation(NamedTuple):
    """Report: all open connections among those sent before the request with `token`."""

    token: int
    connections: tuple[OpenConnection, ...]


class Obeyed(NamedTuple):
    """Report: the order with `token` has been carried out, and every close has been reported."""

    token: int


Report = SocketsTaken | Closed | Hello | Reconciliation | Obeyed


class _Outbox:
    """Messages waiting for room in the pair, in order."""

    def __init__(self, pair_end: socket.socket) -> None:
        self._pair_end = pair_end
        self._waiting: deque[bytes] = deque()

    def __len__(self) -> int:
        return len(self._waiting)

    def put(self, message: bytes) -> None:
        self._waiting.append(message)

    def flush(self) -> bool:
        """Send until the pair is full; return whether the queue is empty."""
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
    """The processor's end. Caches the listener and address of every open connection for reconciliations.

    Call `receive_some` when the pair is readable and `flush` once per loop; poll for writing while `wants_write`.
    """

    def __init__(self, pair_end: socket.socket) -> None:
        self._pair_end = pair_end
        self._outbox = _Outbox(pair_end)
        self._open: dict[int, tuple[int, bytes]] = {}
        #: The last order received, until it is carried out.
        self.order: CloseOrder | None = None
        self._confirmed: list[int] = []
        self._closed: list[int] = []
        self._lost: list[int] = []

    def fileno(self) -> int:
        """Return the descriptor to poll."""
        return self._pair_end.fileno()

    @property
    def wants_write(self) -> bool:
        """Whether reports are waiting for room in the pair."""
        return bool(self._outbox)

    def hello(self, generation: int) -> None:
        """Report the start of this processor. Call before receiving."""
        self._outbox.put(_UP.pack(_HELLO, 1, 0, generation))
        self.flush()

    def receive_some(self, limit: int = QUEUE_SOCKETS) -> list[NewConnection]:
        """Return up to `limit` new connections and report them as taken at once.

        Messages that follow a close order are not received until the order is carried out.
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
                self._send_reconciliation(number)
            elif received.fd < 0:
                self._lost.append(number)
            else:
                client = socket.socket(family, socket.SOCK_STREAM, 0, fileno=received.fd)
                client.setblocking(False)
                self._open[number] = (listener, address)
                self._confirmed.append(number)
                connections.append(NewConnection(client, number, listener, host_text(address), port))
        self.flush()
        return connections

    def report_closed(self, serial: int) -> None:
        """Queue the report of a closed connection for the next `flush`; a serial reported twice counts once."""
        if self._open.pop(serial, None) is not None:
            self._closed.append(serial)

    def obeyed(self) -> None:
        """Report the order as carried out, after the closes that it caused."""
        if self.order is not None:
            self._pack_reports()
            self._outbox.put(_UP.pack(_OBEYED, 1, 0, self.order.token))
            self.order = None
            self.flush()

    def flush(self) -> None:
        """Send pending reports while the pair has room. Waiting serials are combined into few messages."""
        if self._outbox.flush():
            self._pack_reports()
            self._outbox.flush()

    def _pack_reports(self) -> None:
        for kind, serials in ((_CONFIRMED, self._confirmed), (_CLOSED, self._closed), (_LOST, self._lost)):
            for chunk in _chunks(serials):
                packed = b"".join(map(_SERIAL.pack, chunk))
                self._outbox.put(_UP.pack(kind, 1, len(chunk), 0) + packed)
            serials.clear()

    def _send_reconciliation(self, token: int) -> None:
        # Serials noted but unsent must precede the reconciliation: after it they would refer to settled serials.
        self._pack_reports()
        entries = [_RECONCILIATION_ENTRY.pack(serial, where, 0, host) for serial, (where, host) in self._open.items()]
        chunks = list(_chunks(entries)) or [[]]
        for number, chunk in enumerate(chunks, 1):
            self._outbox.put(_UP.pack(_CENSUS, number == len(chunks), len(chunk), token) + b"".join(chunk))


class HandoffSender:
    """The acceptor's end of one pair. Counts nothing: the acceptor interprets the reports.

    `is_silent` returns whether the loop of the processor at the other end has stalled.
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
        """Whether a reconciliation request or an order is waiting for room in the pair."""
        return bool(self._outbox)

    def try_send(self, client: socket.socket, serial: int, listener: int, peer: tuple[str, int]) -> bool:
        """Send a connection; return False if the pair has no room. The caller closes its copy afterwards."""
        if not self.flush():
            return False
        host, port = peer
        message = _DOWN.pack(_CONNECTION, listener, port, client.family, serial, packed_host(host))
        return send_fd(self._pair_end, message, client.fileno())

    def ask_reconciliation(self, token: int) -> None:
        """Request the list of open connections; sent before any later connection."""
        self._outbox.put(_DOWN.pack(_ASK_CENSUS, 0, 0, 0, token, bytes(16)))
        self.flush()

    def order_excess(self, order: CloseOrder) -> None:
        """Send a close order; sent before any later connection."""
        self._outbox.put(_DOWN.pack(_CLOSE_EXCESS, order.protected, 0, 0, order.token, _LEFT.pack(order.left)))
        self.flush()

    def flush(self) -> bool:
        """Send waiting requests and orders; return whether all are sent."""
        return self._outbox.flush()

    def reports(self) -> Iterator[Report]:
        """Yield the processor's reports since the last call, in order."""
        while (received := try_receive(self._pair_end, _UP_BYTES)) is not None and received.payload:
            kind, last, count, number = _UP.unpack_from(received.payload)
            if kind == _HELLO:
                # Discard the partial reconciliation of the previous processor.
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
                yield SocketsTaken(serials) if kind == _CONFIRMED else Closed(serials, lost=kind == _LOST)


def _chunks(items: Sequence[_Item]) -> Iterator[Sequence[_Item]]:
    for start in range(0, len(items), _MOST_ENTRIES):
        yield items[start : start + _MOST_ENTRIES]
