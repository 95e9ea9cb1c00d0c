"""Waiting in tests: for a condition, with a deadline, never for a length of time."""

import time
from collections.abc import Callable
from typing import TypeVar

Value = TypeVar("Value")
POLL_SECONDS = 0.005


def wait_until(condition: Callable[[], Value], what: str, deadline_s: float = 60.0) -> Value:
    """Return the first truthy value of `condition`; AssertionError naming `what` when the deadline passes."""
    end = time.monotonic() + deadline_s
    while True:
        value = condition()
        if value:
            return value
        if time.monotonic() > end:
            raise AssertionError(f"not within {deadline_s} s: {what}")
        time.sleep(POLL_SECONDS)
