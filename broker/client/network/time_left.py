"""How long until a moment, on a clock of nanoseconds that is read in milliseconds. Pure."""

from __future__ import annotations

#: What is nearer than a nanosecond is rounding, and would be waited for in vain.
_NANOSECOND_MS = 1e-6


def time_left_ms(then_ms: float, now_ms: float) -> float:
    """Return how long it is until then; 0 when it is there."""
    left_ms = then_ms - now_ms
    return left_ms if left_ms > _NANOSECOND_MS else 0.0
