"""Steps: work that is cut up, so that whoever does it can do something else in between.

Run by any process. A generator yields where others may have their turn, about twice in a millisecond, and returns its
result. `broker.scheduling` does such work beside other work; `finished` does it at once. Knows nothing of either.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Generator
from concurrent.futures import Future
from typing import Final, TypeAlias, TypeVar

Result = TypeVar("Result")
Steps: TypeAlias = Generator[None, None, Result]
"""Yields where others may have their turn, and returns what came of it."""

#: So many elements of a message are read between two yields: half a millisecond.
ELEMENTS_AT_ONCE: Final = 128

#: How long a step waits for a thread.
_LOOK_S: Final = 0.001


def beside(function: Callable[[], Result]) -> Steps[Result]:
    """Return in steps what a function returns, or raise what it raises: a thread calls it.

    For one long call of a library that lets other threads run meanwhile. It is waited for even if nobody takes the
    steps to their end, as it reads what belongs to the caller.
    """
    outcome: Future[Result] = Future()

    def call() -> None:
        try:
            outcome.set_result(function())
        except BaseException as failure:
            outcome.set_exception(failure)

    thread = threading.Thread(target=call, name="beside", daemon=True)
    thread.start()
    try:
        while thread.is_alive():
            yield
            thread.join(_LOOK_S)
    finally:
        thread.join()
    return outcome.result()


def finished(steps: Steps[Result]) -> Result:
    """Return the result of steps that are taken at once."""
    while True:
        try:
            next(steps)
        except StopIteration as stop:
            result: Result = stop.value
            return result
