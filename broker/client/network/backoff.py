"""Time until a moment, on a clock of nanoseconds read in ms, and time to wait after failures (KIP-580). Pure."""

from __future__ import annotations

import math
import random

#: What is nearer than a nanosecond is rounding, and would be waited for in vain.
_NANOSECOND_MS = 1e-6
_BASE = 2
_JITTER = 0.2


def time_left_ms(then_ms: float, now_ms: float) -> float:
    """Return how long it is until then; 0 when it is there."""
    left_ms = then_ms - now_ms
    return left_ms if left_ms > _NANOSECOND_MS else 0.0


class ExponentialBackoff:
    """`initial_ms`, doubled by each attempt, 20% more or less by chance, and never above `max_ms`."""

    __slots__ = ("_initial_ms", "_max_exponent", "_max_ms", "_random")

    def __init__(self, initial_ms: float, max_ms: float, chance: random.Random) -> None:
        self._initial_ms = min(initial_ms, max_ms)
        self._max_ms = max_ms
        self._max_exponent = math.log2(max_ms / max(initial_ms, 1)) if max_ms > initial_ms else 0.0
        self._random = chance

    def backoff_ms(self, attempts: int) -> float:
        """Return the wait after that many attempts before the last."""
        if self._max_exponent == 0:
            return self._initial_ms
        term = self._initial_ms * math.pow(_BASE, min(attempts, self._max_exponent))
        return min(term * self._random.uniform(1 - _JITTER, 1 + _JITTER), self._max_ms)
