"""Waiting in tests: for a condition, with a deadline that grows with the machine's load, never for a length of time."""

import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

Value = TypeVar("Value")
#: On a machine with nothing else to do.
QUIET_S = 30.0
POLL_SECONDS = 0.005
#: An expensive check, such as one of a status page, must not use the processors that the awaited change needs.
PAUSES_PER_LOOK = 3
MOST_SECONDS = 0.025


def load() -> float:
    """Return the runnable processes of each processor, in the last minute or now; at least 1."""
    text = Path("/proc/loadavg").read_text(encoding="ascii").split()
    running = int(text[3].partition("/")[0])
    return max(1.0, max(float(text[0]), running) / (os.cpu_count() or 1))


def deadline_s(quiet_s: float = QUIET_S) -> float:
    """Return how long something may take now that may take ``quiet_s`` on a quiet machine."""
    return quiet_s * load()


def wait_until(condition: Callable[[], Value], what: str, quiet_s: float = QUIET_S) -> Value:
    """Return the first truthy value of `condition`; AssertionError naming `what` when the deadline passes."""
    first = begun = time.monotonic()
    while True:
        value = condition()
        if value:
            return value
        now = time.monotonic()
        if now - first > quiet_s and now - first > deadline_s(quiet_s):
            raise AssertionError(f"not within {now - first:.0f} s: {what}")
        time.sleep(min(max(POLL_SECONDS, PAUSES_PER_LOOK * (now - begun)), MOST_SECONDS))
        begun = time.monotonic()
