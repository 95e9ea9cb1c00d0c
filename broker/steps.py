"""Steps: tasks divided into slices, so that their caller can run other tasks in between.

Run by any process. A generator yields where other tasks may run, about twice in a millisecond, and returns its result.
`broker.scheduling` runs such tasks interleaved with others; `finished` runs one at once. Knows nothing of either.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Generator
from concurrent.futures import Future
from typing import Final, TypeAlias, TypeVar

Result = TypeVar("Result")
Steps: TypeAlias = Generator[None, None, Result]
"""Yields where other work may run, and returns the result."""

#: Number of elements of a message that are read between two yields: half a millisecond.
ELEMENTS_AT_ONCE: Final = 128

#: How long a step waits for a thread.
_LOOK_S: Final = 0.001


def beside(function: Callable[[], Result]) -> Steps[Result]:
    """Return in steps the result of a function, or raise its exception: a thread calls it.

    For one long call of a library that lets other threads run meanwhile. It is waited for even if the caller abandons
    the steps, as it reads the caller's memory.
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
    """Run the steps to their end at once; return the result."""
    while True:
        try:
            next(steps)
        except StopIteration as stop:
            result: Result = stop.value
            return result
