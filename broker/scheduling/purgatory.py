"""The purgatory: operations that wait for a deadline, for records, or for another process (``E06``).

Runs in handler processes and the controller. Two kinds wait here: fetches below their minimum bytes, which watch
partition rows, and responses that an API function has deferred (`Deferred`). A moved row wakes the operations that
watch it. In each turn a woken operation is tried once, however many of its rows have moved, and a turn spends at most
`SLICE_NS` on this; the remaining operations are tried in the next turn. So the cost grows with the moved rows and their
watchers. Knows nothing of the purpose of an operation.

A row's flag is raised by its first watcher and stays raised when the last one leaves: most watchers return shortly. It
is lowered when the row moves and has no watchers.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass, field
from functools import partial
from typing import Final

from rotunda.broker.scheduling.timers import Timer, Timers

logger = logging.getLogger(__name__)

#: Maximum number of waiting operations, and of all their watched rows. A client's requests continue to wait after it
#: has disconnected, and it chooses their timeout.
MOST_OPERATIONS: Final = 100_000
MOST_WATCHED_ROWS: Final = 1_000_000

#: How long one turn may try operations: its other responses wait for that.
SLICE_NS: Final = 1_000_000


@dataclass(slots=True, eq=False)
class DelayedOperation:
    """One waiting response. ``try_complete(final)`` sends it and returns True, or returns False to continue waiting.

    If it raises, ``give_up`` is called instead and the operation ends. ``rows`` are the partition rows that it watches,
    each once. Those that have moved since the last try are appended to ``moved``, which ``try_complete`` empties.
    """

    try_complete: Callable[[bool], bool]
    deadline_ns: int
    give_up: Callable[[], None]
    rows: Collection[int] = ()
    moved: list[int] = field(default_factory=list)
    is_woken: bool = False
    done: bool = False
    timer: Timer | None = None


class Purgatory:
    """Waiting operations by the partition row they watch, each with a timer for its deadline."""

    def __init__(
        self,
        raise_flags: Callable[[list[int]], None],
        lower_flag: Callable[[int], None],
        timers: Timers,
    ) -> None:
        """Use ``raise_flags(rows)`` to be notified of moves of these rows, until ``lower_flag(row)``."""
        self._raise_flags = raise_flags
        self._lower_flag = lower_flag
        self._timers = timers
        #: The rows with a raised flag, and their watchers in order of arrival.
        self._by_row: dict[int, dict[DelayedOperation, None]] = {}
        #: Operations that watch no row.
        self._unbound: dict[DelayedOperation, None] = {}
        self._woken: deque[DelayedOperation] = deque()
        #: Number of waiting operations.
        self.waiting = 0
        #: Sum over all operations.
        self.watched_rows = 0
        #: Number of tries.
        self.tries = 0

    def has_room(self, rows: int) -> bool:
        """Return whether another operation that watches this number of rows may wait."""
        return self.waiting < MOST_OPERATIONS and self.watched_rows + rows <= MOST_WATCHED_ROWS

    def watch(self, operation: DelayedOperation) -> None:
        """Add an operation; try it again now if flags of its rows were not raised at its first try."""
        self.waiting += 1
        operation.timer = self._timers.at_ns(operation.deadline_ns, partial(self._try, operation, final=True))
        if not operation.rows:
            self._unbound[operation] = None
            return
        self.watched_rows += len(operation.rows)
        by_row = self._by_row
        unflagged: list[int] = []
        for row in operation.rows:
            watchers = by_row.get(row)
            if watchers is None:
                by_row[row] = {operation: None}
                unflagged.append(row)
            else:
                watchers[operation] = None
        if unflagged:
            self._raise_flags(unflagged)
            operation.moved += unflagged
            self._try(operation, final=False)

    def rows_moved(self, rows: Iterable[int]) -> None:
        """Wake the operations that watch rows with moved ends."""
        woken = self._woken
        for row in rows:
            watchers = self._by_row.get(row)
            if watchers:
                for operation in watchers:
                    operation.moved.append(row)
                    if not operation.is_woken:
                        operation.is_woken = True
                        woken.append(operation)
            elif watchers is not None:
                del self._by_row[row]
                self._lower_flag(row)

    def anything_moved(self) -> None:
        """Wake every operation that watches a row: the moved rows are unknown."""
        self.rows_moved(list(self._by_row))

    def something_changed(self) -> None:
        """Wake the operations that wait for another process rather than for records."""
        for operation in self._unbound:
            if not operation.is_woken:
                operation.is_woken = True
                self._woken.append(operation)

    def wake(self, operation: DelayedOperation) -> None:
        """Wake an operation whose result may have changed for another reason than a moved row."""
        if not operation.is_woken and not operation.done:
            operation.is_woken = True
            self._woken.append(operation)

    def run_once(self) -> bool:
        """Try the woken operations, for `SLICE_NS` at most; False if there were none."""
        woken = self._woken
        if not woken:
            return False
        now_ns = self._timers.now_ns
        until_ns = now_ns() + SLICE_NS
        tries = self.tries
        while woken:
            operation = woken.popleft()
            operation.is_woken = False
            if not operation.done:
                self._try(operation, final=False)
                if now_ns() >= until_ns:
                    break
        return self.tries != tries

    @property
    def has_woken(self) -> bool:
        """Whether there are operations for `run_once` to try."""
        return bool(self._woken)

    def _try(self, operation: DelayedOperation, *, final: bool) -> None:
        self.tries += 1
        try:
            operation.done = operation.try_complete(final)
            if final and not operation.done:
                raise RuntimeError("no response at the deadline")
        except Exception:
            logger.exception("closing the connection of a parked request, its response failed")
            operation.done = True
            operation.give_up()
        if operation.done:
            self.waiting -= 1
            self._release(operation)

    def _release(self, operation: DelayedOperation) -> None:
        """Remove all references to a finished operation: its cancelled timer may stay in the heap for long."""
        if operation.timer is not None:
            operation.timer.cancel()
        by_row = self._by_row
        self.watched_rows -= len(operation.rows)
        for row in operation.rows:
            watchers = by_row.get(row)
            if watchers is not None:
                watchers.pop(operation, None)
        self._unbound.pop(operation, None)
