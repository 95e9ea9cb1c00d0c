"""Deadlines of a coordinator: sessions, rebalances, transactions. Runs in handler processes; time comes from outside.

One heap for all. A timer that was cancelled stays in it until its time and is then ignored, so both setting and
cancelling cost next to nothing. Who wants to move a deadline that moves often, such as a session's, lets the old timer
run and looks at the new deadline then.
"""

from __future__ import annotations

import heapq
import logging
from collections.abc import Callable
from itertools import count

logger = logging.getLogger(__name__)


class Timer:
    """One deadline."""

    __slots__ = ("callback", "deadline_ns")

    def __init__(self, deadline_ns: int, callback: Callable[[], None]) -> None:
        self.deadline_ns = deadline_ns
        self.callback: Callable[[], None] | None = callback

    def cancel(self) -> None:
        """Let nothing happen at the deadline."""
        self.callback = None


class Timers:
    """All deadlines of one process."""

    def __init__(self, now_ns: Callable[[], int]) -> None:
        self.now_ns = now_ns
        self._heap: list[tuple[int, int, Timer]] = []
        self._numbers = count()

    def after_ms(self, delay_ms: int, callback: Callable[[], None]) -> Timer:
        """Call ``callback`` once, ``delay_ms`` from now."""
        return self.at_ns(self.now_ns() + delay_ms * 1_000_000, callback)

    def at_ns(self, deadline_ns: int, callback: Callable[[], None]) -> Timer:
        """Call ``callback`` once, when the monotonic clock has reached ``deadline_ns``."""
        timer = Timer(deadline_ns, callback)
        heapq.heappush(self._heap, (deadline_ns, next(self._numbers), timer))
        return timer

    def run_due(self, now_ns: int) -> bool:
        """Call what is due, in order of deadlines; return whether anything was. A fault ends one callback only."""
        ran = False
        heap = self._heap
        while heap and heap[0][0] <= now_ns:
            callback = heapq.heappop(heap)[2].callback
            if callback is not None:
                ran = True
                try:
                    callback()
                except Exception:
                    logger.exception("a timer failed")
        return ran

    def next_deadline_ns(self) -> int | None:
        """Return the next deadline that has not been cancelled, or None."""
        heap = self._heap
        while heap and heap[0][2].callback is None:
            heapq.heappop(heap)
        return heap[0][0] if heap else None
