"""The timers of a process: deadlines of sessions, rebalances, transactions, and of waiting responses.

Runs in handler processes and the controller; the clock is passed in. All timers share one heap. A cancelled timer stays
in it until its time, or until most of the heap is cancelled timers, so setting and cancelling are both cheap. Very many
timers may be due at once, such as the sessions of all members or the maintenance of all partitions after a start: those
that exceed the time of a turn are called in the next one. To move a deadline that changes often, such as a session's,
keep the old timer and check the new deadline when it fires.
"""

from __future__ import annotations

import heapq
import logging
from collections.abc import Callable, Iterator
from functools import partial
from itertools import count

logger = logging.getLogger(__name__)

#: Time of timers in one turn; the timer that exceeds it still finishes.
AT_ONCE_NS = 5_000_000

#: A smaller heap is never searched for cancelled timers.
_LEAST_SWEPT = 1024


class Timer:
    """One deadline."""

    __slots__ = ("callback", "deadline_ns")

    def __init__(self, deadline_ns: int, callback: Callable[[], None]) -> None:
        self.deadline_ns = deadline_ns
        self.callback: Callable[[], None] | None = callback

    def cancel(self) -> None:
        """Cancel the timer: its callback is not called."""
        self.callback = None


class Timers:
    """All deadlines of one process."""

    def __init__(self, now_ns: Callable[[], int]) -> None:
        self.now_ns = now_ns
        self._heap: list[tuple[int, int, Timer]] = []
        self._numbers = count()
        #: Size of the heap at which cancelled timers are removed.
        self._sweep_at = _LEAST_SWEPT

    def __len__(self) -> int:
        return len(self._heap)

    def after_ms(self, delay_ms: int, callback: Callable[[], None]) -> Timer:
        """Call ``callback`` once, ``delay_ms`` from now."""
        return self.at_ns(self.now_ns() + delay_ms * 1_000_000, callback)

    def at_ns(self, deadline_ns: int, callback: Callable[[], None]) -> Timer:
        """Call ``callback`` once, when the monotonic clock has reached ``deadline_ns``."""
        timer = Timer(deadline_ns, callback)
        if len(self._heap) >= self._sweep_at:
            self._sweep()
        heapq.heappush(self._heap, (deadline_ns, next(self._numbers), timer))
        return timer

    def in_steps(self, steps: Iterator[None]) -> None:
        """Run an iterator of steps in the following turns, for `AT_ONCE_NS` in each."""
        self.after_ms(0, partial(self._run_steps, steps))

    def run_due(self, now_ns: int) -> bool:
        """Call the due timers in order of deadlines, for `AT_ONCE_NS` at most; return whether there were any.

        A fault ends one callback only.
        """
        ran = False
        heap = self._heap
        if not heap or heap[0][0] > now_ns:
            return ran
        end_ns = self.now_ns() + AT_ONCE_NS
        while heap and heap[0][0] <= now_ns:
            callback = heapq.heappop(heap)[2].callback
            if callback is not None:
                ran = True
                try:
                    callback()
                except Exception:
                    logger.exception("a timer failed")
                if self.now_ns() >= end_ns:
                    break
        return ran

    def _run_steps(self, steps: Iterator[None]) -> None:
        end_ns = self.now_ns() + AT_ONCE_NS
        for _ in steps:
            if self.now_ns() >= end_ns:
                self.in_steps(steps)
                return

    def _sweep(self) -> None:
        """Remove cancelled timers; the next sweep is when the heap has doubled, so the cost per timer is small."""
        self._heap[:] = [entry for entry in self._heap if entry[2].callback is not None]
        heapq.heapify(self._heap)
        self._sweep_at = max(_LEAST_SWEPT, 2 * len(self._heap))

    def next_deadline_ns(self) -> int | None:
        """Return the next deadline that is not cancelled, or None."""
        heap = self._heap
        while heap and heap[0][2].callback is None:
            heapq.heappop(heap)
        return heap[0][0] if heap else None
