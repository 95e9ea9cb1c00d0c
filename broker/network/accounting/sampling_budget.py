"""The sampling budget of a processor: rows it may send to the recorder, refilled over time up to a second's worth.

Pure. Every request is recorded up to a rate at which that costs next to nothing; above it, and after a short burst,
each row represents several.
"""

from __future__ import annotations

_NS_PER_S = 1_000_000_000


class SamplingBudget:
    """The token bucket of one processor. It starts full."""

    def __init__(self) -> None:
        self._rows = float("inf")
        self._filled_ns = 0

    def interval(self, rows: int, now_ns: int, rows_per_second: int) -> int:
        """Return n to send one of every n of these ``rows``, and deduct them from the budget. 1: send all.

        ``rows_per_second`` 0 means unlimited.
        """
        if not rows_per_second:
            return 1
        elapsed_ns = max(0, now_ns - self._filled_ns)
        self._filled_ns += elapsed_ns
        allowed = min(float(rows_per_second), self._rows + elapsed_ns * rows_per_second / _NS_PER_S)
        interval = max(1, -(-rows // max(1, int(allowed))))
        self._rows = max(0.0, allowed - rows / interval)
        return interval
