"""The rate of new connections as Kafka measures it: its Rate over a sum in sampled windows (`A11`).

Pure arithmetic; the acceptor has one for the broker, one for each listener and one for each address with a quota. A
sample starts with the first connection after the end of the previous sample, so windows follow the connections and not
the clock. A rate is averaged over at least all windows but one: a limit of R first applies at the connection after
(windows - 1) x seconds x R of a burst.
"""

from __future__ import annotations

import math
from typing import Final, NamedTuple

#: Kafka's default of every limit: none.
UNLIMITED: Final = 2**31 - 1


class Windows(NamedTuple):
    """`quota.window.num` and `quota.window.size.seconds`, in ms."""

    samples: int = 11
    length_ms: int = 1000


class _Sample:
    __slots__ = ("began_ms", "last_ms", "total")

    def __init__(self, now_ms: int) -> None:
        self.reset(now_ms)

    def reset(self, now_ms: int) -> None:
        self.began_ms = self.last_ms = now_ms
        self.total = 0


class ConnectionRate:
    """Connections per second. Times are in ms of any monotonic clock."""

    __slots__ = ("_current", "_samples", "_windows")

    def __init__(self, windows: Windows) -> None:
        self._windows = windows
        self._samples: list[_Sample] = []
        self._current = 0

    def record(self, count: int, now_ms: int) -> None:
        """Count connections; a negative number subtracts from the current sample."""
        sample = self._sample(now_ms)
        sample.total += count
        sample.last_ms = now_ms

    def delay_ms(self, limit: int, now_ms: int) -> int:
        """Return the delay until the count is within ``limit`` per second: 0 within it, at most one window.

        A limit of 0 is never met: the delay is a whole window.
        """
        self._drop_obsolete(now_ms)
        total = sum(sample.total for sample in self._samples)
        elapsed_ms = self._elapsed_ms(now_ms)
        rate = total * 1000 / elapsed_ms
        if rate <= limit:
            return 0
        longest_ms = self._windows.length_ms
        # As Java rounds: half a millisecond up.
        return min(longest_ms, math.floor((rate - limit) / limit * elapsed_ms + 0.5)) if limit else longest_ms

    def _sample(self, now_ms: int) -> _Sample:
        """Return the current sample; there is one more sample than windows, for the one that is partly too old."""
        samples = self._samples
        if not samples:
            samples.append(_Sample(now_ms))
        sample = samples[self._current]
        if now_ms - sample.began_ms < self._windows.length_ms:
            return sample
        self._current = (self._current + 1) % (self._windows.samples + 1)
        if self._current == len(samples):
            samples.append(_Sample(now_ms))
        else:
            samples[self._current].reset(now_ms)
        return samples[self._current]

    def _drop_obsolete(self, now_ms: int) -> None:
        oldest_ms = now_ms - self._windows.samples * self._windows.length_ms
        for sample in self._samples:
            if sample.last_ms <= oldest_ms:
                sample.reset(now_ms)

    def _elapsed_ms(self, now_ms: int) -> int:
        most, length_ms = self._windows
        elapsed_ms = now_ms - min((sample.began_ms for sample in self._samples), default=now_ms)
        missing = most - 1 - elapsed_ms // length_ms
        return max(1, elapsed_ms + max(0, missing) * length_ms)
