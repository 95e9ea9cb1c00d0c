"""Garbage: Python's search for objects that only hold each other, kept from taking longer the more there is.

Runs in processors, handlers and the controller, in their loops. Python looks through young objects often, which takes
microseconds, and now and then through all there are: 200 ms with 50,000 groups, in which nobody is served. Here that
search is begun by the loop. What it has looked through is set aside, once there is so much of it that looking again
would take long, and is not looked at any more; so a search takes as long as what has come since takes. What is set
aside goes as ever when nothing refers to it. Only objects in a circle would stay, and no API leaves any behind.
"""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Final

#: A search that takes longer is the last one for what it has looked through.
LONG_NS: Final = 5_000_000

#: Python's own generations: so many new objects make a search of the youngest, so many of those one of the next.
_YOUNG: Final = (700, 10)

#: So many of the latter, which some 14,000 objects may have outlived, make a search of all: up to 10 ms.
OLD: Final = 2
_NEVER: Final = 1 << 30


@contextmanager
def paused_search() -> Iterator[None]:
    """Search for no garbage while very many objects are made that stay."""
    gc.disable()
    try:
        yield
    finally:
        gc.enable()


class GarbageSearch:
    """The search of one process, from when it is made on."""

    def __init__(self, now_ns: Callable[[], int]) -> None:
        """Begin with the loop: what stands by then, such as the groups that were read back, is never looked through."""
        self._now_ns = now_ns
        gc.freeze()
        gc.set_threshold(*_YOUNG, _NEVER)

    def turn(self) -> None:
        """Look for garbage if it is time. HOT."""
        if gc.get_count()[2] >= OLD:
            self._search()

    def _search(self) -> None:
        began_ns = self._now_ns()
        gc.collect()
        if self._now_ns() - began_ns > LONG_NS:
            gc.freeze()
