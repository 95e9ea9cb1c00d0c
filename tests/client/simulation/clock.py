"""Simulated time: it passes during waits, and runs events at given times. One thread; a run is the same for a seed."""

from __future__ import annotations

import heapq
from collections.abc import Callable
from itertools import count

NS_OF_MS = 1_000_000
EPOCH_MS = 1_700_000_000_000


class SimulatedClock:
    """A clock, and the events that wait for it. Times are milliseconds since the run began."""

    def __init__(self) -> None:
        self.now_ms = 0.0
        self._events: list[tuple[float, int, Callable[[], None]]] = []
        self._numbers = count()

    def monotonic_ns(self) -> int:
        return int(self.now_ms * NS_OF_MS)

    def wall_ms(self) -> int:
        return EPOCH_MS + int(self.now_ms)

    def wall_s(self) -> float:
        return (EPOCH_MS + self.now_ms) / 1000

    def at(self, delay_ms: float, event: Callable[[], None]) -> None:
        """Schedule an event; events of one time run in the order in which they were scheduled."""
        heapq.heappush(self._events, (self.now_ms + delay_ms, next(self._numbers), event))

    @property
    def next_event_ms(self) -> float | None:
        return self._events[0][0] if self._events else None

    def run_due(self) -> bool:
        """Run all events that are due; return whether there were any."""
        happened = False
        while self._events and self._events[0][0] <= self.now_ms:
            heapq.heappop(self._events)[2]()
            happened = True
        return happened
