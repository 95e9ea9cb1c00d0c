"""Slow turns: the durations of the turns of a process's loop, and the task that made one slow.

Runs in processors, handlers and the controller. During a turn, the process serves nothing else; long tasks are done in
slices for that reason (`scheduling.slices`). A turn costs a few stores here: the loop's own clock readings are used,
and the time between two of them is attributed to the last task before. Knows nothing of requests: a task is a pair of
texts.
"""

from __future__ import annotations

import logging
from collections.abc import Callable

from rotunda.broker.clock import SystemClock
from rotunda.broker.server_log.log_setup import RepeatedWarnings

#: The limit for every turn; a longer one is counted, and logged at DEBUG.
SLOW_TURN_NS = 50_000_000

#: A turn that clients notice: logged as a warning, at most one of a kind in ten seconds.
NOTICEABLE_TURN_NS = 250_000_000

#: The processor time is read after this much time in turns, and not in each one: the reading is a system call.
_SAMPLE_NS = 10_000_000

#: The time of requests and messages within one turn; the remaining ones wait for the next turn.
LONG_NS = 20_000_000

#: A task, and its client (empty: none in particular).
Doing = tuple[str, str]

#: Tasks of a turn that belong to no single request.
METADATA: Doing = ("metadata changes", "")
TAKING: Doing = ("Produce, Fetch, or another handler's request", "")
COMMITTING: Doing = ("coordinators and the commit of appended records", "")
MAINTENANCE: Doing = ("log maintenance", "")
WAITING: Doing = ("parked requests", "")

#: The time between the last clock reading and the end of the turn.
_THE_REST: Doing = ("the rest of the turn", "")


class SlowTurns:
    """The turns of one loop. ``count`` of them were slow; the longest lasted ``longest_ns``.

    ``busy`` of the slow ones were so by the process's own doing: they used more than 50 ms of processor time, up to 10
    ms of turns before them included. In the others it waited for a processor or a disk.
    """

    __slots__ = (
        "_began_ns", "_doing", "_doing_ns", "_logger", "_sampled_ns", "_stamp_ns", "_thread_ns", "_unsampled_ns",
        "_warnings", "busy", "count", "longest_ns",
    )  # fmt: skip

    def __init__(
        self, logger: logging.Logger, now_ns: Callable[[], int], thread_ns: Callable[[], int] = SystemClock.thread_ns
    ) -> None:
        self._logger = logger
        self._warnings = RepeatedWarnings(logger, now_ns)
        self._thread_ns = thread_ns
        self._sampled_ns = thread_ns()
        self._unsampled_ns = 0
        self.busy = 0
        self._began_ns = self._stamp_ns = 0
        self._doing = _THE_REST
        self._doing_ns = 0
        self.count = 0
        self.longest_ns = 0

    def begin(self, now_ns: int) -> None:
        """Begin a turn. HOT."""
        self._began_ns = self._stamp_ns = now_ns
        self._doing_ns = 0

    def spent(self, now_ns: int, doing: Doing) -> None:
        """Attribute the time since the last clock reading to ``doing``. HOT."""
        ns = now_ns - self._stamp_ns
        self._stamp_ns = now_ns
        if ns > self._doing_ns:
            self._doing_ns = ns
            self._doing = doing

    def end(self, now_ns: int) -> None:
        """End the turn; a slow one is counted and reported. HOT."""
        took_ns = now_ns - self._began_ns
        if took_ns > self.longest_ns:
            self.longest_ns = took_ns
        if took_ns > SLOW_TURN_NS:
            self.spent(now_ns, _THE_REST)
            what, whom = self._doing
            self._report(took_ns, what, f"; {self._doing_ns // 1_000_000} ms for {what}{_of(whom)}")
        self._unsampled_ns += took_ns
        if self._unsampled_ns > _SAMPLE_NS:
            self._sample()

    def took(self, took_ns: int, ready: int) -> None:
        """Account for a whole turn of a processor, with ``ready`` connections and bells. HOT."""
        if took_ns > self.longest_ns:
            self.longest_ns = took_ns
        if took_ns > SLOW_TURN_NS:
            self._report(took_ns, "connections", f"; connections and bells ready: {ready}")
        self._unsampled_ns += took_ns
        if self._unsampled_ns > _SAMPLE_NS:
            self._sample()

    def counters(self) -> dict[str, int]:
        """Return the counts since the start, by metric name."""
        return {"slow_turns": self.count, "busy_turns": self.busy}

    def _sample(self) -> None:
        self._unsampled_ns = 0
        self._sampled_ns = self._thread_ns()

    def _report(self, took_ns: int, kind: str, what: str) -> None:
        self.count += 1
        own_ns = min(took_ns, self._thread_ns() - self._sampled_ns)
        if own_ns > SLOW_TURN_NS:
            self.busy += 1
            kind = f"{kind}, busy"
        line = "a turn took %d ms, at most %d ms of CPU; other requests waited%s"
        values = took_ns // 1_000_000, own_ns // 1_000_000, what
        if took_ns < NOTICEABLE_TURN_NS:
            self._logger.debug(line, *values)
        else:
            self._warnings.warning(kind, line, *values)


def _of(client: str) -> str:
    return f" of client {client}" if client else ""
