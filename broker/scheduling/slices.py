"""Slices: long tasks, run for a few milliseconds at a time so that other requests are served in between.

Runs in handler processes and the controller. A long task is a generator. It yields after about a millisecond at most,
and returns its result. It may also yield a `Deferred`, and is then resumed with the value that completed it. The loop
spends `BUDGET_NS` of each turn on all tasks together.

- Tasks of one *lane* run one after the other, so one client's requests are executed in order.
- Tasks rise through *levels* by the time they have used, and the levels alternate. So short tasks finish soon,
  however many long ones there are. A task holds its partial result, so few may be in the upper levels at a time.
- The number of waiting tasks and the size of their requests are limited.
- An *exclusive* task runs alone among its kind: two metadata changes never see each other's partial state.
- A task that changes nothing ends when its client has disconnected.

A task exists in memory only. If its process dies it is lost and its sender repeats it: processors send every request
but Produce to the replacement (`resender`), and targets repeat their calls as well (`peer_rpc`). The request of the
current slice is in shared memory (`shm.tables.current_request`), to identify one that never ends or kills the process.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable, Generator, Hashable
from dataclasses import dataclass
from typing import Any, TypeAlias

from rotunda.broker.scheduling.deferred import Deferred
from rotunda.broker.server_log.slow_turns import Doing, SlowTurns
from rotunda.shm.tables.current_request import NOBODY, CurrentRequest, Identity

logger = logging.getLogger(__name__)

#: Time of all tasks together in one turn.
BUDGET_NS = 5_000_000

#: Maximum number of requests, and of their bytes together; small requests are exempt from the latter.
MOST_WAITING = 1024
MOST_WAITING_BYTES = 64 << 20
_SMALL_BYTES = 64 << 10

#: For each level: the time up to which tasks belong to it, and its number of places. A task needs a place in the next
#: level before it continues.
MOST_LONG = 8
_MOST_MIDDLING = 64
SHORT_NS = 1_000_000
_MIDDLING_NS = 10_000_000
_EVER_NS = 1 << 62

Work: TypeAlias = Generator[Deferred | None, Any, Any]


class TooManyWaitError(Exception):
    """The queue of tasks is full: this one is rejected."""


@dataclass(slots=True, eq=False)
class SlicedWork:
    """One task: its generator, its request, and the receiver of its result or its fault."""

    work: Work
    lane: Hashable
    done: Callable[[Any], None]
    failed: Callable[[], None]
    doing: Doing
    identity: Identity = NOBODY
    """Its request."""
    exclusive: bool = False
    size: int = 0
    """Bytes of its request."""
    is_wanted: Callable[[], bool] | None = None
    """Whether a client still waits for it; None: it runs in any case."""
    sent: Any = None
    """The next value to send to the generator."""
    level: _Level | None = None
    """Its queue; None before its start, and for a task outside of the queues."""
    spent_ns: int = 0


class _Level:
    """Tasks that have used about the same time: those that are ready, and those that wait for a place."""

    __slots__ = ("gate", "inside", "most", "next", "ready", "until_ns")

    def __init__(self, until_ns: int, most: int, following: _Level | None) -> None:
        self.until_ns = until_ns
        self.most = most
        self.next = following
        self.inside = 0
        self.ready: deque[SlicedWork] = deque()
        self.gate: deque[SlicedWork] = deque()

    def enter(self, work: SlicedWork) -> None:
        """Assign a place to a task, or queue it for one."""
        work.level = self
        if self.inside < self.most:
            self.inside += 1
            self.ready.append(work)
        else:
            self.gate.append(work)

    def leave(self) -> None:
        """Pass the place of a task that is not ready to the next one."""
        self.inside -= 1
        if self.gate and self.inside < self.most:
            self.inside += 1
            self.ready.append(self.gate.popleft())


class Slices:
    """The tasks of one target."""

    def __init__(self, now_ns: Callable[[], int], turns: SlowTurns, current: CurrentRequest) -> None:
        self._now_ns = now_ns
        self._current = current
        self._turns = turns
        #: By lane, the unfinished tasks; the first has started unless it waits to be exclusive. Always the same object.
        self.lanes: dict[Hashable, deque[SlicedWork]] = {}
        long = _Level(_EVER_NS, MOST_LONG, None)
        middling = _Level(_MIDDLING_NS, _MOST_MIDDLING, long)
        self._short = _Level(SHORT_NS, MOST_WAITING, middling)
        #: Tasks that run in parallel with all others.
        self._beside: deque[SlicedWork] = deque()
        #: The ready tasks, in groups that alternate.
        self._ready = (self._beside, self._short.ready, middling.ready, long.ready)
        self._turn_of = 0
        self._waiting = 0
        self._waiting_bytes = 0
        self._exclusive: SlicedWork | None = None
        self._to_be_exclusive: deque[SlicedWork] = deque()

    @property
    def waiting(self) -> int:
        """Number of requests that are processed in slices or wait for it."""
        return self._waiting

    def add(self, new: SlicedWork) -> None:
        """Submit a task. Raises TooManyWaitError."""
        is_too_much = new.size > _SMALL_BYTES and self._waiting_bytes + new.size > MOST_WAITING_BYTES
        if self._waiting and (self._waiting >= MOST_WAITING or is_too_much):
            raise TooManyWaitError(f"{self._waiting} requests of {self._waiting_bytes} bytes are waiting")
        self._waiting += 1
        self._waiting_bytes += new.size
        lane = self.lanes.get(new.lane)
        if lane is None:
            self.lanes[new.lane] = deque((new,))
            self._begin(new)
        else:
            lane.append(new)

    def add_now(self, new: SlicedWork) -> None:
        """Submit a task in parallel with all others, without limits: only if it never waits for another task."""
        self._beside.append(new)

    def begin_own(self, work: Work) -> None:
        """Run a task and ignore its result."""
        self.add_now(SlicedWork(work, "own", _nothing_more, _nothing_more, ("snapshots for readers", "")))

    def has(self, lane: Hashable) -> bool:
        """Return whether this lane has an unfinished task. HOT."""
        return lane in self.lanes

    @property
    def is_idle(self) -> bool:
        """Whether no task is ready in this turn."""
        return not any(self._ready)

    def run_once(self) -> bool:
        """Run the ready tasks for their share of a turn; False if there were none."""
        if self.is_idle:
            return False
        # At least one, however late the process is.
        now_ns = self._now_ns()
        end_ns = now_ns + BUDGET_NS
        while not self.is_idle and now_ns < end_ns:
            work = self._next()
            if work.is_wanted is None or work.is_wanted():
                self._slice(work, end_ns)
            else:
                self._drop(work)
            now_ns = self._now_ns()
        self._current.leave()
        return True

    def _next(self) -> SlicedWork:
        """Return the next ready task; the groups alternate."""
        while True:
            ready = self._ready[self._turn_of]
            self._turn_of = (self._turn_of + 1) % len(self._ready)
            if ready:
                return ready.popleft()

    def _slice(self, work: SlicedWork, end_ns: int) -> None:
        """Run a task until its share of the turn is used up, or it waits, or is done."""
        self._current.enter(work.identity)
        began_ns = self._now_ns()
        # The other ready tasks get equal shares.
        end_ns = began_ns + (end_ns - began_ns) // (sum(map(len, self._ready)) + 1)
        if work.level is not None:
            end_ns = min(end_ns, began_ns + work.level.until_ns - work.spent_ns)
        try:
            while True:
                waits_for = work.work.send(work.sent)
                work.sent = None
                now_ns = self._now_ns()
                self._turns.spent(now_ns, work.doing)
                if waits_for is not None:
                    # Release its place, or two targets could wait for each other's places.
                    self._leave(work)
                    waits_for.bind(lambda value: self._go_on(work, value))
                    return
                if now_ns >= end_ns:
                    work.spent_ns += now_ns - began_ns
                    self._put_back(work)
                    return
        except StopIteration as stop:
            self._end(work)
            self._give(work, stop.value)
        except Exception:
            logger.exception("closing the connection of %s, it failed", work.doing[0])
            self._end(work)
            work.failed()

    def _give(self, work: SlicedWork, result: Any) -> None:
        try:
            work.done(result)
        except Exception:
            logger.exception("closing the connection of %s, its response failed", work.doing[0])
            work.failed()
        self._turns.spent(self._now_ns(), work.doing)

    def _drop(self, work: SlicedWork) -> None:
        """End the task of a disconnected client."""
        work.work.close()
        self._end(work)
        work.failed()

    def _put_back(self, work: SlicedWork) -> None:
        """Queue a task for its next slice, in the next level if it has used up the time of this one."""
        level = work.level
        if level is None:
            self._beside.append(work)
        elif level.next is not None and work.spent_ns >= level.until_ns:
            level.leave()
            level.next.enter(work)
        else:
            level.ready.append(work)

    def _leave(self, work: SlicedWork) -> None:
        if work.level is not None:
            work.level.leave()

    def _go_on(self, work: SlicedWork, value: Any) -> None:
        work.sent = value
        if work.level is None:
            self._beside.append(work)
        else:
            # It had a place before, so the level may exceed its limit for a while.
            work.level.inside += 1
            work.level.ready.append(work)

    def _begin(self, work: SlicedWork) -> None:
        """Start the first task of a lane, unless it is exclusive and another exclusive task is running."""
        if not work.exclusive:
            self._short.enter(work)
        elif self._exclusive is None:
            self._exclusive = work
            self._short.enter(work)
        else:
            self._to_be_exclusive.append(work)

    def _end(self, work: SlicedWork) -> None:
        """Remove a finished task, and start the tasks that waited for it."""
        self._leave(work)
        if work.level is None:
            return
        self._waiting -= 1
        self._waiting_bytes -= work.size
        if self._exclusive is work:
            self._exclusive = None
            if self._to_be_exclusive:
                self._begin(self._to_be_exclusive.popleft())
        lane = self.lanes[work.lane]
        lane.popleft()
        if lane:
            self._begin(lane[0])
        else:
            del self.lanes[work.lane]


def _nothing_more(_result: object = None) -> None:
    """Ignore the result."""
