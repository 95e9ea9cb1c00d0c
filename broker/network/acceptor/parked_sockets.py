"""Connections that are refused with a delay: neither read nor counted, and closed when their time has come (`A20`).

Runs in the acceptor, which owns them. The one that ends first is the first in the heap. So that they cannot take the
descriptors that others need there is a most of them: beyond it the one that would end first is closed at once. All of
them end with the process.
"""

from __future__ import annotations

import heapq
import socket
from collections.abc import Callable
from itertools import count

#: Each takes a descriptor of the acceptor for up to a second.
MOST_PARKED = 1000


class ParkedSockets:
    """The sockets with their ends. ``closed`` is called with the listener of each that is closed."""

    def __init__(self, closed: Callable[[int], None], most: int = MOST_PARKED) -> None:
        self._closed = closed
        self._most = most
        self._heap: list[tuple[int, int, socket.socket, int]] = []
        self._numbers = count()

    def __len__(self) -> int:
        return len(self._heap)

    @property
    def next_end_ns(self) -> int:
        """When the next one is to be closed; 0 if there is none."""
        return self._heap[0][0] if self._heap else 0

    def park(self, client: socket.socket, end_ns: int, listener: int) -> None:
        """Keep a connection until its end."""
        heapq.heappush(self._heap, (end_ns, next(self._numbers), client, listener))
        if len(self._heap) > self._most:
            self._close_first()

    def close_ended(self, now_ns: int) -> None:
        """Close those whose time has come."""
        while self._heap and self._heap[0][0] <= now_ns:
            self._close_first()

    def close_all(self) -> None:
        """Close all of them (`A31`)."""
        while self._heap:
            self._close_first()

    def _close_first(self) -> None:
        _, _, client, listener = heapq.heappop(self._heap)
        client.close()
        self._closed(listener)
