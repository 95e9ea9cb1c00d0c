"""The sampling budget: how many rows a processor may send to the recorder, refilled with time up to a second's worth.

Pure. What every request did is recorded as long as requests come at a rate at which that costs next to nothing; beyond
it, and after a short burst, each row stands for several.
"""

from __future__ import annotations

_NS_PER_S = 1_000_000_000


class SamplingBudget:
    """The bucket of one processor. It begins full."""

    def __init__(self) -> None:
        self._rows = float("inf")
        self._filled_ns = 0

    def interval(self, rows: int, now_ns: int, rows_per_second: int) -> int:
        """Return of how many of these ``rows`` one may be sent, and take it that they are. 1: all of them.

        ``rows_per_second`` 0 is no limit.
        """
        if not rows_per_second:
            return 1
        elapsed_ns = max(0, now_ns - self._filled_ns)
        self._filled_ns += elapsed_ns
        allowed = min(float(rows_per_second), self._rows + elapsed_ns * rows_per_second / _NS_PER_S)
        interval = max(1, -(-rows // max(1, int(allowed))))
        self._rows = max(0.0, allowed - rows / interval)
        return interval
