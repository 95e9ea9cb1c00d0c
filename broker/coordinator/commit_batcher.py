"""The commit batcher: commits of offsets wait a moment for others, so that many share a batch, a write and a wake-up.

Pure. What Kafka's `group.coordinator.append.linger.ms` does, but for whom it serves: a commit is written with the turn
that took it as long as few clients commit, however often, and only when many do do they wait for the end of a window of
that length. Without a length nobody waits: what one turn takes is written together anyway.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

#: When so many connections have committed in a window, commits in the next one wait for its end.
MANY_CONNECTIONS: Final = 8

_NS_PER_MS: Final = 1_000_000


class CommitBatcher:
    """The windows of one handler, one after the other."""

    def __init__(self, linger_ms: Callable[[], int]) -> None:
        self._linger_ms = linger_ms
        #: Those that have committed in this window: who takes a commit adds to them.
        self.connections: set[int] = set()
        self._are_many = False
        #: When the window ends.
        self.end_ns = 0
        #: Whether what is patient is to be written in this turn.
        self.is_over = True

    def turn(self, now_ns: int) -> None:
        """Take note of the time. HOT: once a turn."""
        if now_ns < self.end_ns:
            self.is_over = not self._are_many
            return
        connections, linger_ms = self.connections, self._linger_ms()
        self._are_many = False
        if connections:
            self._are_many = len(connections) >= MANY_CONNECTIONS
            connections.clear()
        self.end_ns = now_ns + linger_ms * _NS_PER_MS if linger_ms > 0 else now_ns
        self.is_over = True
