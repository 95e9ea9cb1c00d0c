"""The overload controller of one target: it slows clients down before requests wait in rings without bound (`D23`).

Runs in targets. Whether requests queue faster than they are served shows in the least time that any of them has waited
in its ring during an interval, not in the mean: a burst passes, a standing queue does not (CoDel: K. Nichols and
V. Jacobson, "Controlling Queue Delay", ACM Queue 10(5), 2012). While that is above the target, each answer carries a
throttle time, for which its connection is not read: it doubles with each interval and is halved with each that was
below the target. So what cannot be served in time waits at the clients, and nothing is refused.
"""

from __future__ import annotations

from typing import Final

INTERVAL_NS: Final = 100_000_000
FIRST_MS: Final = 5
MOST_MS: Final = 1000

_NS_PER_MS: Final = 1_000_000


class Overload:
    """How long the requests of one target wait, and the throttle time that follows from it."""

    __slots__ = ("_end_ns", "_least_ns", "_target_ns", "throttle_ms", "throttled")

    def __init__(self) -> None:
        self._target_ns = 0
        self._least_ns = -1
        self._end_ns = 0
        #: For how long every client is throttled now.
        self.throttle_ms = 0
        #: How many answers have carried such a time.
        self.throttled = 0

    def follow(self, target_ms: int) -> None:
        """Put `overload.queue.time.ms` in force; 0: never throttle."""
        self._target_ns = target_ms * _NS_PER_MS
        if not target_ms:
            self.throttle_ms = 0

    def waited(self, wait_ns: int, now_ns: int) -> None:
        """Take note of how long the oldest request of a ring has waited, which has just been taken from there. HOT."""
        if not self._target_ns:
            return
        if wait_ns < self._least_ns or self._least_ns < 0:
            self._least_ns = wait_ns
        if now_ns >= self._end_ns:
            self._end_interval(now_ns)

    def throttle(self, count: int = 1) -> int:
        """Return for how many ms the client of so many answers is to be throttled, and count that."""
        if self.throttle_ms:
            self.throttled += count
        return self.throttle_ms

    def _end_interval(self, now_ns: int) -> None:
        # After a pause there is nothing to judge by: the first request of an interval may have come in one burst.
        is_under_way = now_ns < self._end_ns + INTERVAL_NS
        if is_under_way and self._least_ns > self._target_ns:
            self.throttle_ms = min(MOST_MS, max(FIRST_MS, 2 * self.throttle_ms))
        else:
            self.throttle_ms //= 2
        self._least_ns, self._end_ns = -1, now_ns + INTERVAL_NS
