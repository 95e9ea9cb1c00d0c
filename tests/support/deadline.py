"""Waiting in tests: for a condition, with a deadline, never for a length of time."""

import time
from collections.abc import Callable
from typing import TypeVar

Value = TypeVar("Value")
POLL_SECONDS = 0.005
#: An expensive check, such as one of a status page, must not use the processors that the awaited change needs.
PAUSES_PER_LOOK = 3
MOST_SECONDS = 0.025


def wait_until(condition: Callable[[], Value], what: str, deadline_s: float = 60.0) -> Value:
    """Return the first truthy value of `condition`; AssertionError naming `what` when the deadline passes."""
    begun = time.monotonic()
    end = begun + deadline_s
    while True:
        value = condition()
        if value:
            return value
        now = time.monotonic()
        if now > end:
            raise AssertionError(f"not within {deadline_s} s: {what}")
        time.sleep(min(max(POLL_SECONDS, PAUSES_PER_LOOK * (now - begun)), MOST_SECONDS))
        begun = time.monotonic()
