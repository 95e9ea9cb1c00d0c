"""Garbage collection: limits the time of Python's search for reference cycles, however many objects there are.

Runs in processors, handlers and the controller, in their loops. Python often searches the young objects, which costs
microseconds, and occasionally all objects: 200 ms with 50,000 groups, during which no request is served. Here the loop
starts that full search. If it was long, the objects it has searched are frozen and never searched again, so the next
search covers only newer objects. Frozen objects are freed as usual when nothing refers to them. Only cycles would stay,
and no API creates any.
"""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Final

#: After a longer search, the searched objects are frozen.
LONG_NS: Final = 5_000_000

#: Python's own generations: new objects per search of the youngest, and those searches per search of the next.
_YOUNG: Final = (700, 10)

#: Searches of the second generation, which some 14,000 objects may have survived, per full search: up to 10 ms.
OLD: Final = 2
_NEVER: Final = 1 << 30


@contextmanager
def paused_search() -> Iterator[None]:
    """Pause the search while very many long-lived objects are created."""
    gc.disable()
    try:
        yield
    finally:
        gc.enable()


class GarbageSearch:
    """The search of one process, from the creation of this object on."""

    def __init__(self, now_ns: Callable[[], int]) -> None:
        """Freeze the objects that exist before the loop starts, such as loaded groups: they are never searched."""
        self._now_ns = now_ns
        gc.freeze()
        gc.set_threshold(*_YOUNG, _NEVER)

    def run_once(self) -> None:
        """Search for garbage if it is due. HOT."""
        if gc.get_count()[2] >= OLD:
            self._search()

    def _search(self) -> None:
        began_ns = self._now_ns()
        gc.collect()
        if self._now_ns() - began_ns > LONG_NS:
            gc.freeze()
