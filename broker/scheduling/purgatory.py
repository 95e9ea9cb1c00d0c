"""The purgatory: operations that wait for a deadline, for records, or for another process (``E06``).

Runs in handler processes and the controller. Two kinds wait here: fetches below their minimum bytes, which watch
partition rows, and answers that an API function put off (`Deferred`). A row that moves wakes the operations that watch
it; in each turn an operation that was woken is tried once, however many of its rows have moved, and a turn spends no
longer on this than `TURN_NS`: what is left is tried in the next. So the cost grows with the rows that moved and their
watchers. Knows nothing of what an operation is for.

A row's flag goes up with its first watcher and stays up when the last one goes: most come back in a moment. It comes
down when the row moves and nobody watches it.
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

#: So many operations wait at a time, and watch so many rows together. A client's requests go on waiting when it has
#: gone, and it chooses for how long.
MOST_OPERATIONS: Final = 100_000
MOST_WATCHED_ROWS: Final = 1_000_000

#: How long one turn may try operations.
TURN_NS: Final = 4_000_000


@dataclass(slots=True, eq=False)
class DelayedOperation:
    """One waiting answer. ``try_complete(final)`` answers and returns True, or returns False to go on waiting.

    If it raises, ``give_up`` is called instead and nothing waits any more. ``rows`` are the partition rows that it
    watches, each once; those of them that have moved since the last try are put into ``moved``, which whoever tries
    empties.
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
        """``raise_flags(rows)``: from then on whoever moves one of them says so, until ``lower_flag(row)``."""
        self._raise_flags = raise_flags
        self._lower_flag = lower_flag
        self._timers = timers
        #: The rows whose flag is up, with those who watch them, in order of their coming.
        self._by_row: dict[int, dict[DelayedOperation, None]] = {}
        #: Those that watch no row.
        self._unbound: dict[DelayedOperation, None] = {}
        self._woken: deque[DelayedOperation] = deque()
        #: How many operations wait.
        self.waiting = 0
        #: By all operations together.
        self.watched_rows = 0
        #: How often operations have been tried.
        self.tries = 0

    def has_room(self, rows: int) -> bool:
        """Return whether another operation may wait that watches so many rows."""
        return self.waiting < MOST_OPERATIONS and self.watched_rows + rows <= MOST_WATCHED_ROWS

    def watch(self, operation: DelayedOperation) -> None:
        """Let an operation wait. It is tried again at once for rows whose flag was down when it was tried first."""
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
        """Wake the operations that watch rows whose ends have moved."""
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
        """Wake everything that watches a row: which ones have moved is not known."""
        self.rows_moved(list(self._by_row))

    def something_changed(self) -> None:
        """Wake the operations that wait for another process rather than for records."""
        for operation in self._unbound:
            if not operation.is_woken:
                operation.is_woken = True
                self._woken.append(operation)

    def turn(self) -> bool:
        """Try what has been woken, for `TURN_NS` at most; False if there was nothing."""
        woken = self._woken
        if not woken:
            return False
        now_ns = self._timers.now_ns
        until_ns = now_ns() + TURN_NS
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
        """Whether there is something for `turn` to try."""
        return bool(self._woken)

    def _try(self, operation: DelayedOperation, *, final: bool) -> None:
        self.tries += 1
        try:
            operation.done = operation.try_complete(final)
            if final and not operation.done:
                raise RuntimeError("no answer at the deadline")
        except Exception:
            logger.exception("an answer that was put off failed; closing its connection")
            operation.done = True
            operation.give_up()
        if operation.done:
            self.waiting -= 1
            self._release(operation)

    def _release(self, operation: DelayedOperation) -> None:
        """Let nothing watch, and keep, an answered operation: its timer, which may stay for long, lets go of it."""
        if operation.timer is not None:
            operation.timer.cancel()
        by_row = self._by_row
        self.watched_rows -= len(operation.rows)
        for row in operation.rows:
            watchers = by_row.get(row)
            if watchers is not None:
                watchers.pop(operation, None)
        self._unbound.pop(operation, None)
