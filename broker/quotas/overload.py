"""The overload controller of one target: throttles clients before requests queue in rings without bound (`D23`).

Runs in targets. The sign of overload is the minimum time that requests waited in their ring during an interval, not the
mean: a burst passes, a persistent queue does not (CoDel: K. Nichols and V. Jacobson, "Controlling Queue Delay", ACM
Queue 10(5), 2012). While that minimum is above the target, each response carries a throttle time, during which its
connection is not read. It doubles with each such interval and is halved with each interval below the target. So the
excess load waits at the clients, and nothing is rejected.
"""

from __future__ import annotations

from typing import Final

INTERVAL_NS: Final = 100_000_000
FIRST_MS: Final = 5
MOST_MS: Final = 1000

_NS_PER_MS: Final = 1_000_000


class Overload:
    """The waiting time of one target's requests, and the resulting throttle time."""

    __slots__ = ("_end_ns", "_least_ns", "_target_ns", "throttle_ms", "throttled")

    def __init__(self) -> None:
        self._target_ns = 0
        self._least_ns = -1
        self._end_ns = 0
        #: The current throttle time of every client.
        self.throttle_ms = 0
        #: Number of responses that carried such a time.
        self.throttled = 0

    def follow(self, target_ms: int) -> None:
        """Apply `overload.queue.time.ms`; 0: never throttle."""
        self._target_ns = target_ms * _NS_PER_MS
        if not target_ms:
            self.throttle_ms = 0

    def waited(self, wait_ns: int, now_ns: int) -> None:
        """Record the waiting time of the oldest request just read from a ring. HOT."""
        if not self._target_ns:
            return
        if wait_ns < self._least_ns or self._least_ns < 0:
            self._least_ns = wait_ns
        if now_ns >= self._end_ns:
            self._end_interval(now_ns)

    def throttle(self, count: int = 1) -> int:
        """Return the throttle time in ms of ``count`` responses, and count them."""
        if self.throttle_ms:
            self.throttled += count
        return self.throttle_ms

    def _end_interval(self, now_ns: int) -> None:
        # After a pause the measurement is not valid: the first request of an interval may be part of one burst.
        is_under_way = now_ns < self._end_ns + INTERVAL_NS
        if is_under_way and self._least_ns > self._target_ns:
            self.throttle_ms = min(MOST_MS, max(FIRST_MS, 2 * self.throttle_ms))
        else:
            self.throttle_ms //= 2
        self._least_ns, self._end_ns = -1, now_ns + INTERVAL_NS
