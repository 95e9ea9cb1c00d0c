"""Connections rejected with a delay: neither read nor counted, and closed at their deadline (`A20`).

Runs in the acceptor, which owns them. A heap orders them by deadline. Their number is limited, so that they cannot use
up the descriptors that others need: beyond the limit the one with the earliest deadline is closed at once. All are
closed when the process ends.
"""

from __future__ import annotations

import heapq
import socket
from collections.abc import Callable
from itertools import count

#: Each uses a descriptor of the acceptor for up to a second.
MOST_PARKED = 1000


class ParkedSockets:
    """The sockets with their deadlines. ``closed`` is called with the listener of each closed socket."""

    def __init__(self, closed: Callable[[int], None], most: int = MOST_PARKED) -> None:
        self._closed = closed
        self._most = most
        self._heap: list[tuple[int, int, socket.socket, int]] = []
        self._numbers = count()

    def __len__(self) -> int:
        return len(self._heap)

    @property
    def next_end_ns(self) -> int:
        """The earliest deadline; 0 if there are no sockets."""
        return self._heap[0][0] if self._heap else 0

    def park(self, client: socket.socket, end_ns: int, listener: int) -> None:
        """Keep a connection open until its deadline."""
        heapq.heappush(self._heap, (end_ns, next(self._numbers), client, listener))
        if len(self._heap) > self._most:
            self._close_first()

    def close_ended(self, now_ns: int) -> None:
        """Close the sockets past their deadline."""
        while self._heap and self._heap[0][0] <= now_ns:
            self._close_first()

    def close_all(self) -> None:
        """Close all sockets (`A31`)."""
        while self._heap:
            self._close_first()

    def _close_first(self) -> None:
        _, _, client, listener = heapq.heappop(self._heap)
        client.close()
        self._closed(listener)
