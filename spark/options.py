"""The values of options: parses numbers and lengths of time from a command line, or fails with one clear line.

Pure. Each function is the `type` of an argument, so that a wrong value is rejected before Spark starts.
"""

from __future__ import annotations

from rotunda.spark.failures import JobFailed
from rotunda.spark.time_range import duration_of

_SECOND_US = 1_000_000


def positive(text: str) -> int:
    """Return a whole number above zero. Raises JobFailed."""
    if not (text.isascii() and text.isdecimal()) or len(text) > 15 or int(text) == 0:
        raise JobFailed(f"{text[:40]!r} is not a whole number above zero")
    return int(text)


def several(text: str) -> list[int]:
    """Return comma-separated whole numbers above zero, each once and in order. Raises JobFailed."""
    return sorted({positive(part.strip()) for part in text.split(",")})


def length_us(text: str) -> int:
    """Return a length of time such as 90s, 10m or 24h in microseconds. Raises JobFailed."""
    return int(duration_of(text).total_seconds()) * _SECOND_US
