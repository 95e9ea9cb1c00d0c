"""The supervisor's orders to the acceptor: open one more listener, with its socket, or close one (`A30`).

Messages of a SOCK_SEQPACKET pair, which outlives an acceptor: its replacement may receive an order already in effect.
"""

from __future__ import annotations

import logging
import socket
import struct
from collections.abc import Iterator
from typing import NamedTuple

from rotunda.broker.ipc.process_context import BoundListener
from rotunda.broker.network.fd_passing import try_receive

_log = logging.getLogger(__name__)

OPEN, CLOSE = 1, 2

# Kind, index, port; then the name.
_ORDER = struct.Struct("=hhi")
_MOST_BYTES = 512


class ListenerOrder(NamedTuple):
    """One listener to open or close. Its socket is sent in both cases; the receiver owns it."""

    is_open: bool
    listener: BoundListener


def packed(kind: int, index: int, listener: BoundListener) -> bytes:
    """Return the message to send with the listener's socket."""
    return _ORDER.pack(kind, index, listener.port) + listener.name.encode()[: _MOST_BYTES - _ORDER.size]


class ListenerOrders:
    """The acceptor's end of the pair."""

    def __init__(self, pair_end: socket.socket) -> None:
        self._pair_end = pair_end

    def fileno(self) -> int:
        """Return the descriptor to poll."""
        return self._pair_end.fileno()

    def received(self) -> Iterator[ListenerOrder]:
        """Yield the orders received since the last call."""
        while (received := try_receive(self._pair_end, _MOST_BYTES)) is not None and received.payload:
            if received.fd < 0:
                _log.error("cannot receive a listener: no free file descriptor")
                continue
            kind, index, port = _ORDER.unpack_from(received.payload)
            name = received.payload[_ORDER.size :].decode(errors="replace")
            listening = socket.socket(fileno=received.fd)
            listening.setblocking(False)
            yield ListenerOrder(kind == OPEN, BoundListener(name, "", port, listening, "", port, "", index))
