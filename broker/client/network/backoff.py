"""Remaining time until a deadline, in ms on a nanosecond clock, and exponential backoff (KIP-580). Pure functions."""

from __future__ import annotations

import math
import random

#: Less than a nanosecond is a rounding error: no wait can be that short.
_NANOSECOND_MS = 1e-6
_BASE = 2
_JITTER = 0.2


def time_left_ms(then_ms: float, now_ms: float) -> float:
    """Return the time until `then_ms`; 0 if it has passed."""
    left_ms = then_ms - now_ms
    return left_ms if left_ms > _NANOSECOND_MS else 0.0


class ExponentialBackoff:
    """Exponential backoff: `initial_ms`, doubled per attempt, with 20% jitter, at most `max_ms`."""

    __slots__ = ("_initial_ms", "_max_exponent", "_max_ms", "_random")

    def __init__(self, initial_ms: float, max_ms: float, chance: random.Random) -> None:
        self._initial_ms = min(initial_ms, max_ms)
        self._max_ms = max_ms
        self._max_exponent = math.log2(max_ms / max(initial_ms, 1)) if max_ms > initial_ms else 0.0
        self._random = chance

    def backoff_ms(self, attempts: int) -> float:
        """Return the backoff after this number of attempts before the last."""
        if self._max_exponent == 0:
            return self._initial_ms
        term = self._initial_ms * math.pow(_BASE, min(attempts, self._max_exponent))
        return min(term * self._random.uniform(1 - _JITTER, 1 + _JITTER), self._max_ms)
