"""Steps: work that is cut up, so that whoever does it can do something else in between.

Run by any process. A generator yields where others may have their turn, about twice in a millisecond, and returns its
result. `broker.scheduling` does such work beside other work; `finished` does it at once. Knows nothing of either.
"""

from __future__ import annotations

from collections.abc import Generator
from typing import Final, TypeAlias, TypeVar

Result = TypeVar("Result")
Steps: TypeAlias = Generator[None, None, Result]
"""Yields where others may have their turn, and returns what came of it."""

#: So many elements of a message are read between two yields: half a millisecond.
ELEMENTS_AT_ONCE: Final = 128


def finished(steps: Steps[Result]) -> Result:
    """Return the result of steps that are taken at once."""
    while True:
        try:
            next(steps)
        except StopIteration as stop:
            result: Result = stop.value
            return result
