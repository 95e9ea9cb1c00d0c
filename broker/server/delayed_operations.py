"""Purgatory: answers that wait for a deadline, for records, or for another process (``E06``).

Runs in handler processes and the controller. Two kinds wait here: fetches below their minimum bytes, watched by
partition row, and answers that an API function put off (`Parked`). Both have a deadline; neither blocks the loop.
"""

from __future__ import annotations

import heapq
import logging
from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import count

logger = logging.getLogger(__name__)

#: Answered operations are swept out before their deadline when there are more of them than this, and than others.
_SWEEP_FROM = 256


@dataclass(slots=True)
class DelayedOperation:
    """One waiting answer. ``try_complete(final)`` answers and returns True, or returns False to go on waiting.

    If it raises, ``give_up`` is called instead and nothing waits any more.
    """

    try_complete: Callable[[bool], bool]
    deadline_ns: int
    give_up: Callable[[], None]
    rows: tuple[int, ...] = ()
    done: bool = field(default=False)


class DelayedOperations:
    """Waiting answers by deadline and by the partition row they watch."""

    def __init__(self, rows_changed: Callable[[int, bool], None]) -> None:
        """``rows_changed(row, watched)`` is told when the first watcher of a row comes and the last one goes."""
        self._rows_changed = rows_changed
        self._by_deadline: list[tuple[int, int, DelayedOperation]] = []
        self._by_row: dict[int, dict[int, DelayedOperation]] = {}
        self._unbound: dict[int, DelayedOperation] = {}
        self._numbers = count()
        self._answered = 0

    def __len__(self) -> int:
        return len(self._by_deadline)

    def watch(self, operation: DelayedOperation) -> None:
        """Let an operation wait. One that watches rows is tried again at once: it may have been overtaken."""
        number = next(self._numbers)
        heapq.heappush(self._by_deadline, (operation.deadline_ns, number, operation))
        if not operation.rows:
            self._unbound[number] = operation
            return
        for row in operation.rows:
            watchers = self._by_row.get(row)
            if watchers is None:
                watchers = self._by_row[row] = {}
                self._rows_changed(row, True)
            watchers[number] = operation
        self._try(operation, final=False)

    def row_advanced(self, row: int) -> None:
        """Try the operations that watch a row whose log end has moved."""
        watchers = self._by_row.get(row)
        if watchers:
            for number, operation in list(watchers.items()):
                if operation.done:
                    del watchers[number]
                else:
                    self._try(operation, final=False)
            self._forget_done(row)

    def something_changed(self) -> None:
        """Try the operations that wait for another process rather than for records."""
        for number, operation in list(self._unbound.items()):
            if operation.done or self._try(operation, final=False):
                del self._unbound[number]

    def expire(self, now_ns: int) -> None:
        """Answer the operations whose time is up."""
        while self._by_deadline and (self._by_deadline[0][0] <= now_ns or self._by_deadline[0][2].done):
            _, number, operation = heapq.heappop(self._by_deadline)
            self._unbound.pop(number, None)
            if not operation.done:
                self._try(operation, final=True)
            self._answered -= 1
            for row in operation.rows:
                self._forget_done(row)
        if self._answered > _SWEEP_FROM and self._answered * 2 > len(self._by_deadline):
            self._sweep()

    def next_deadline_ns(self) -> int | None:
        """When `expire` is needed next, or None when nothing waits."""
        return self._by_deadline[0][0] if self._by_deadline else None

    def _try(self, operation: DelayedOperation, final: bool) -> bool:
        if operation.done:
            return True
        try:
            operation.done = operation.try_complete(final)
            if final and not operation.done:
                raise RuntimeError("no answer at the deadline")
        except Exception:
            logger.exception("an answer that was put off failed; closing its connection")
            operation.done = True
            operation.give_up()
        self._answered += operation.done
        return operation.done

    def _sweep(self) -> None:
        """Let go of answered operations whose deadlines are far off."""
        done = [entry for entry in self._by_deadline if entry[2].done]
        self._by_deadline = [entry for entry in self._by_deadline if not entry[2].done]
        heapq.heapify(self._by_deadline)
        self._answered = 0
        for row in {row for _, _, operation in done for row in operation.rows}:
            self._forget_done(row)
        self._unbound = {number: operation for number, operation in self._unbound.items() if not operation.done}

    def _forget_done(self, row: int) -> None:
        watchers = self._by_row.get(row)
        if watchers is None:
            return
        for number in [n for n, operation in watchers.items() if operation.done]:
            del watchers[number]
        if not watchers:
            del self._by_row[row]
            self._rows_changed(row, False)
