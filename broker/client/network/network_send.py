"""The bytes of one request on their way out, and one response that came in. Values of the I/O thread."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

from broker.client.network.requests import Buffer


class NetworkReceive(NamedTuple):
    """One response: [offset, end) of `buffer`, without its size."""

    node_id: int
    buffer: Buffer
    offset: int
    end: int


class NetworkSend:
    """Buffers for a broker, sent in order and not joined; `completed` when all have left."""

    __slots__ = ("_left", "buffers", "completed", "node_id", "size")

    def __init__(self, node_id: int, buffers: Sequence[Buffer]) -> None:
        self.node_id = node_id
        self.buffers = list(buffers)
        self.size = sum(map(len, buffers))
        self._left = self.size
        self.completed = False

    def write_to(self, write: Callable[[Sequence[Buffer]], int]) -> int:
        """Let `write` send what is left, which returns how many bytes it took; return the same. Raises OSError."""
        sent = write(self.buffers)
        self._left -= sent
        if self._left == 0:
            self.completed = True
            # The memory of batches is not held longer than it is needed.
            self.buffers = []
        elif sent:
            self._drop(sent)
        return sent

    def _drop(self, sent: int) -> None:
        buffers = self.buffers
        done = 0
        while sent >= len(buffers[done]):
            sent -= len(buffers[done])
            done += 1
        del buffers[:done]
        if sent:
            buffers[0] = memoryview(buffers[0])[sent:]
