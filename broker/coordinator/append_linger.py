"""Whether commits of offsets may wait a moment for others, so that many share a batch, a write and a wake-up.

Pure. What Kafka's `group.coordinator.append.linger.ms` does, but for whom it serves: while commits are few each is
written with the turn that took it, and only when many come in do they wait for the end of a window of that length.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

#: From this many appends in a window on, those of the next one wait for its end. One client that waits for each answer
#: does not get there with the default length.
MANY_APPENDS: Final = 32

_NS_PER_MS: Final = 1_000_000


class AppendLinger:
    """The windows of one handler, one after the other."""

    def __init__(self, linger_ms: Callable[[], int]) -> None:
        self._linger_ms = linger_ms
        self._appends = 0
        self._are_many = False
        #: When the window ends.
        self.end_ns = 0
        #: Whether what is patient is to be written in this turn.
        self.is_over = True

    def turn(self, now_ns: int) -> None:
        """Take note of the time. Called once a turn."""
        if now_ns < self.end_ns:
            self.is_over = not self._are_many
            return
        self._are_many = self._appends >= MANY_APPENDS
        self._appends = 0
        self.end_ns = now_ns + self._linger_ms() * _NS_PER_MS
        self.is_over = True

    def written(self, appends: int) -> None:
        """Take note of how many appends have been written."""
        self._appends += appends
